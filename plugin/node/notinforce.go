package node

import (
	"slices"
	"strconv"
	"time"

	"github.com/nri-blkio/nri-blkio/plugin/node/lifecycle"
	"github.com/nri-blkio/nri-blkio/plugin/podevent"
	"github.com/nri-blkio/nri-blkio/policy"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// A container can run without a part of what its pod or its claims ask for. Either the policy ignores the error, or the container
// already runs and cannot be rejected, or the cause is not an error, such as a claim on NFS. Each pass finds this state again, so
// the pod has an event only when it begins. A class that a rule of the policy chooses causes no event, because the author of the
// pod did not ask for it.

// maxCauses bounds the causes of a pod that have events, so that they do not displace its other events.
const maxCauses = 4

// notInForce is a reason why a part of what is requested for a container is not in force.
type notInForce struct {
	lastingKey
	text string
	// mayPass is true for a cause that mostly ends within seconds, such as a disk that cannot be read.
	mayPass bool
}

// lastingKey identifies a cause of a pod.
type lastingKey struct {
	causeKey
	isKept bool // some limits that were granted before stay
}

// lastingCause is a cause that the last look at the pod has found.
type lastingCause struct {
	since   time.Time // when it was first found
	isNoted bool      // there was an event
}

// newCauses returns events for those causes of a pod that were not noted yet. They count as noted from then on.
func (p *pod) newCauses(containers []*container, now time.Time) (out []event) {
	var lasting map[lastingKey]lastingCause // mostly there is none
	for _, c := range containers {
		for _, found := range c.causes() {
			key := found.lastingKey
			if _, again := lasting[key]; again || len(lasting) >= maxCauses {
				continue
			}
			if lasting == nil {
				lasting = map[lastingKey]lastingCause{}
			}
			known := p.causes[key]
			if known.since.IsZero() {
				known.since = now
			}
			if !known.isNoted && (!found.mayPass || now.Sub(known.since) >= patience) {
				known.isNoted = true
				out = append(out, event{p.named(), podevent.NotInForce, key.about(strconv.FormatBool(key.isKept)), found.text})
			}
			lasting[key] = known
		}
	}
	p.causes = lasting
	return out
}

// causes returns why parts of what is requested for a container that runs are not in force. Mode observe and failed writes have
// events of their own, and so has a container whose start was refused.
func (c *snapshot) causes() (out []notInForce) {
	d := &c.decision
	if d.policy == nil || d.policy.Mode() != policy.ModeEnforce || !c.mayRun() || c.life.Phase() == lifecycle.Refused {
		return nil
	}
	head, isKept := "some limits are not in force: ", slices.Contains(d.desired.WarningKinds, policy.StillGranted)
	if isKept {
		head = "some limits are not in force, and some that were granted before stay: "
	}
	add := func(err error) {
		found := causeOf(err)
		mayPass := found.failure != "" || found.request.Reason.Kind() == annotation.Internal || !d.policy.KnowsClaims() && !c.isLate() // the claims are known in a moment
		out = append(out, notInForce{lastingKey{found.causeKey, isKept}, head + found.text, mayPass})
	}
	if d.err != nil {
		add(d.err)
	}
	for _, errs := range [][]*annotation.Error{d.desired.Claims, d.desired.Unenforced} {
		for _, err := range errs {
			add(err)
		}
	}
	return out
}
