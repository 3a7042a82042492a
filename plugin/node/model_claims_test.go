package node

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy"
)

// All containers of the model have a claim at /data, and the lender has another one, with the same limits. These are known from the first document of the pod on. Wrong and
// unknown ones leave those in force that were granted before, so what a container has then depends on earlier events.

// modelClaims are the limits of the claim: none, some, and wrong ones. The last one stands for volumes that are unknown.
var modelClaims = []string{"", "wbps=2Mi", "wbps=5Mi riops=700", "rbps=4Mi", "wbps=2500Ki wiops=90", wrongClaims, unknownClaims}

const wrongClaims, unknownClaims = "wpbs=1Mi", "unknown"

// modelIsValid reports whether the plugin follows these limits of a claim.
func modelIsValid(text string) bool { return text != wrongClaims && text != unknownClaims }

// modelVolumesOf returns the volumes of a pod by the text of the limits of its claim.
func modelVolumesOf(text string) *policy.Volumes {
	if text == unknownClaims {
		return policy.UnknownVolumes("129 of them")
	}
	return policy.NewVolumes(modelVolumes(text))
}

// modelVolumes returns the same as a document has it.
func modelVolumes(text string) []policy.Volume {
	v, raw := policy.Volume{Name: "data", Claim: "data"}, policy.Volume{Name: "raw", Claim: "raw"}
	for _, name := range modelNames {
		v.Places = append(v.Places, policy.Place{Container: name, Path: "/data"})
		raw.Places = append(raw.Places, policy.Place{Container: name, Path: rawDevice})
	}
	if text != "" {
		v.Limits, raw.Limits = &text, &text
	}
	return []policy.Volume{v, raw}
}

// editClaim changes the limits of the claim of a pod.
func (r *modelRuntime) editClaim(p *modelPod, rng *rand.Rand) {
	text := modelClaims[rng.IntN(len(modelClaims))]
	if rng.IntN(2) == 0 && p.claim != "" { // those that were granted have to stay
		text = modelClaims[len(modelClaims)-1-rng.IntN(2)]
	}
	r.note("%s: its claim has the limits %q", p.name, text)
	r.tell(func() {
		p.claim = text
		if modelIsValid(text) { // the plugin may have followed it before the next one came
			for _, sb := range p.sandboxes {
				for _, c := range sb.containers {
					c.claimed = nil
				}
			}
		}
		p.claimed = p.claimed || modelVolumesOf(text).HasLimits()
		r.write(p, true)
	}, p)
}

// keepsClaims reports whether a container may have limits of its claim that were granted before.
func (r *modelRuntime) keepsClaims(p *modelPod, c *modelContainer) bool {
	facts := r.factsIn(p, c.sandbox)
	if !facts.volumes.Known() {
		return p.claimed || namesVolume(facts.annotations)
	}
	return len(r.decided(p, c).Claims) > 0
}

// keepsSome reports whether keepsClaims is true for some container.
func (r *modelRuntime) keepsSome(p *modelPod, of []*modelContainer) bool {
	return slices.ContainsFunc(of, func(c *modelContainer) bool { return r.keepsClaims(p, c) })
}

// ofClaims returns the part of a decision that comes from limits of the pod's own claims. What is lent follows its lender.
func ofClaims(d policy.Desired) modelLimits {
	isOfClaim := func(s policy.Setting) bool { return s.Source.Kind == policy.FromClaim && s.Basis != policy.LentLimit }
	return grantedTo(policy.Desired{Settings: d.Settings.Where(isOfClaim), Lowered: d.Lowered.Where(isOfClaim)})
}

// checkClaimed finds limits of the claim that are missing although the container was granted them, and since then only the limits
// of the claim were changed.
func (r *modelRuntime) checkClaimed(p *modelPod, c *modelContainer) string {
	decided := r.decided(p, c).Settings
	claimed := modelLimits{}
	for dev, limits := range c.claimed {
		for key, rate := range limits {
			if _, found := decided.Get(blkio.Address{Key: blkio.Key(key), Dev: dev}); rate != blkio.Unset && !found {
				now := claimed[dev]
				now[key] = rate
				claimed[dev] = now
			}
		}
	}
	return r.checkHas(c, claimed, "while its claim had them")
}

// checkHas finds limits that a container was granted at some time and does not have.
func (r *modelRuntime) checkHas(c *modelContainer, granted modelLimits, when string) string {
	got := finiteLimits(r.k.Limits(c.cgroup))
	for dev, limits := range granted {
		for key, rate := range limits {
			if rate != blkio.Unset && got[dev][key] == blkio.Unset {
				return fmt.Sprintf("%s has %q on %s, and was granted %q %s", c.cgroup, got[dev], dev, limits, when)
			}
		}
	}
	return ""
}

// heedsClaims reports whether limits of claims apply to all pods, independently of their labels.
func heedsClaims(pol *policy.Policy) bool {
	return pol.Mode == policy.ModeEnforce && pol.Floors.Bps != modelFloor && !slices.ContainsFunc(pol.Rules, func(rule policy.Rule) bool {
		return rule.Mode != "" || rule.Annotations == policy.IgnoreAnnotations || rule.Annotations == policy.RejectAnnotations
	})
}

// allowsClaims reports whether limits of claims count under the rule of a pod.
func (r *modelRuntime) allowsClaims(by *policy.Pod) bool {
	return !slices.ContainsFunc(r.policy.Rules, func(rule policy.Rule) bool {
		return rule.Name == by.Rule() && (rule.Annotations == policy.IgnoreAnnotations || rule.Annotations == policy.RejectAnnotations)
	})
}

// isConcerned reports whether the policy concerns the containers of a sandbox. Claims alone do not count where they are ignored.
func (r *modelRuntime) isConcerned(p *modelPod, sb *modelSandbox) bool {
	facts := r.factsIn(p, sb)
	by := r.ruledBy(p, facts)
	if !r.allowsClaims(by) {
		facts.volumes = nil
		by = r.ruledBy(p, facts)
	}
	return !by.IsEmpty()
}
