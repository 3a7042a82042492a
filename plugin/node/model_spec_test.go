package node

import (
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/internal/fakenode"
	"github.com/nri-blkio/nri-blkio/plugin/inventory"
	"github.com/nri-blkio/nri-blkio/policy"
)

var (
	thirdDisk = blkio.Disk{Dev: blkio.Dev{Major: 254, Minor: 32}, Name: "vdc"}
	slowDisk  = blkio.Disk{Dev: blkio.Dev{Major: 254, Minor: 48}, Name: "vdd"}
	usedDisk  = blkio.Disk{Dev: blkio.Dev{Major: 254, Minor: 64}, Name: "vde"} // of no mount
	lateDisk  = blkio.Disk{Dev: blkio.Dev{Major: 254, Minor: 80}, Name: "vdf"} // of a mount that comes and goes
	lentDisk  = blkio.Disk{Dev: blkio.Dev{Major: 254, Minor: 96}, Name: "vdg"} // of the device of the lender
)

func modelDisks() []blkio.Disk {
	return []blkio.Disk{rootDisk, dataDisk, thirdDisk, slowDisk, usedDisk, lateDisk, lentDisk}
}

// modelPropagated is a directory of the host. What is mounted in it later propagates into containers.
const modelPropagated = "/mnt/propagated"

// modelSpec is the request of a pod. All of its containers have the same mounts, except that slow ones have one
// more. So the limits of the pod as a whole do not depend on which containers were created so far.
type modelSpec struct {
	annotations map[string]string
	slow        string // a host path on a disk that may hang, "" for none
	third       bool   // a volume on a third disk
	propagates  bool   // mounts of the host propagate into its containers
	moves       bool   // its data is on another disk whenever all of its containers have ended
}

// modelNames are the containers of each pod; slowName has the slow volume.
var modelNames = []string{"a", "b", slowName}

const slowName = "slow"

// bareLimits is the key without a scope, which means each container.
var bareLimits = strings.TrimSuffix(limitsKey, "/")

// namesVolume reports whether annotations have a target that is a volume by its name.
func namesVolume(annotations map[string]string) bool {
	for _, text := range annotations {
		if strings.Contains(text, "@data") {
			return true
		}
	}
	return false
}

// newModelSpec draws the annotations of a pod.
func newModelSpec(slot int, rng *rand.Rand) modelSpec {
	pick := func(of ...string) string { return of[rng.IntN(len(of))] }
	s := modelSpec{annotations: map[string]string{"other.example/key": "value"}, third: rng.IntN(2) == 0, moves: slot%4 == 1, propagates: slot%3 == 2}
	if rng.IntN(5) == 0 {
		return s // asks for nothing, but may have a class
	}
	set := func(key, value string) {
		if value != "" {
			s.annotations[key] = value
		}
	}
	if slot%4 == 0 {
		s.slow = "/mnt/slow/" + string(rune('a'+slot))
		set(limitsKey+"container."+slowName, "/slow wbps=5Mi")
	}
	containers := limitsKey + "containers"
	if rng.IntN(3) == 0 {
		containers = bareLimits
	}
	set(containers, pick("", "rootfs wbps=1Mi", "* wbps=1Mi", "* wbps=2Mi rbps=3Mi", "/data wbps=1Mi wiops=100; rootfs rbps=4Mi",
		"rootfs wbps=1Mi; /nowhere wbps=1Mi", "* wbps=max; /data wbps=7Mi", "@data wbps=6Mi; rootfs riops=80", "@data wiops=70"))
	set(limitsKey+"container.a", pick("", "", "rootfs wbps=3Mi", "/data wbps=max", "/data rbps=1Mi; rootfs wbps=2Mi", "/data wpbs=1Mi", "/mem wbps=1Mi"))
	total := []string{"", "", "rootfs wbps=1536Ki", "/data wbps=4Mi rbps=1Mi", "rootfs riops=1k; /data riops=1k"}
	if s.slow == "" {
		total = append(total, "* wbps=9Mi")
	}
	set(limitsKey+"pod-total", pick(total...))
	set(weightKey+"containers", pick("", "", "", "30"))
	set(weightKey+"container.b", pick("", "", "", "70"))
	return s
}

// mounts returns the mounts of a container with its data in a directory of the host.
func (s modelSpec) mounts(name, data string) []inventory.Mount {
	out := []inventory.Mount{
		bind(data, "/data", "bind"), bind("/mnt/mem/x", "/mem", "bind"),
		{Type: "proc", Source: "proc", Destination: "/proc"},
	}
	if s.third && !s.moves {
		out = append(out, bind("/mnt/third/x", "/third", "bind"))
	}
	if s.propagates {
		out = append(out, bind(modelPropagated, "/propagated", "rbind", "rslave"))
	}
	if s.slow != "" && name == slowName {
		out = append(out, bind(s.slow, "/slow", "bind"))
	}
	return out
}

// facts returns the facts about a container by which policy decides. The disk that it uses without a mount is among them.
func (r *modelRuntime) facts(p *modelPod, c *modelContainer) policy.Container {
	out := policy.Container{Name: c.name, Rootfs: r.disks.MountOf("/var/lib/containerd"), Stage: policy.Running}
	for _, m := range p.spec.mounts(c.name, c.data) {
		if m.Type == "proc" {
			out.Mounts = append(out.Mounts, policy.Mount{Destination: m.Destination, Injected: true, Backing: new(blkio.Backing{FSType: "proc"})})
			continue
		}
		out.Mounts = append(out.Mounts, policy.Mount{Destination: m.Destination, Backing: new(r.disks.MountOf(m.Source))})
	}
	if p.slot == lendingSlot {
		out.Mounts = append(out.Mounts, policy.Mount{Destination: rawDevice, Backing: new(fakenode.MountTable{Disks: r.disks}.Device(lentDisk.Dev))})
	}
	if c.uses {
		out.Undeclared = []blkio.Disk{usedDisk}
	}
	out.Undeclared = append(out.Undeclared, r.lentTo(p).Disks...)
	if c.below {
		i := slices.IndexFunc(out.Mounts, func(m policy.Mount) bool { return m.Destination == "/propagated" })
		out.Mounts[i].Below = []policy.Below{{Path: "/propagated/late", Backing: new(r.disks.MountOf(modelPropagated + "/late"))}}
	}
	return out
}

// modelFloor is a floor that rejects a part of the requests of pods.
const modelFloor = 3 << 19

// modelRules are rules that come into force; none most often.
var modelRules = []string{
	"", "", "",
	"rules:\n- {name: a, match: {podSelector: {matchLabels: {tier: a}}}, class: one}\n" +
		"- {name: b, match: {podSelector: {matchLabels: {tier: b}}}, class: two, mode: observe}\n",
	"rules:\n- {name: a, match: {podSelector: {matchExpressions: [{key: tier, operator: In, values: [a, c]}]}}, class: two, annotations: ignore}\n",
	"rules:\n- {name: a, match: {podSelector: {matchLabels: {tier: a}}}, class: two, annotations: reject}\n- {name: all, annotations: reject}\n",
	"rules:\n- {name: c, match: {podSelector: {matchLabels: {tier: c}}}, class: none}\n- {name: all, match: {qos: [Guaranteed]}, class: one}\n",
	"rules:\n- {name: red, match: {namespaceSelector: {matchLabels: {team: red}}}, class: one}\n" +
		"- {name: other, match: {namespaceSelector: {matchExpressions: [{key: team, operator: DoesNotExist}]}}, class: two}\n",
	"rules:\n- {name: blue, match: {namespaceSelector: {matchLabels: {team: blue}}, podSelector: {matchLabels: {tier: b}}}, class: one, mode: observe}\n",
}

const modelClasses = "apiVersion: blkio.noderesource.dev/v1alpha1\nkind: NodePolicy\n" +
	"classes: {one: {limits: ['* wbps=6Mi wiops=900'], weight: 40}, two: {limits: ['/data wbps=8Mi', 'rootfs rbps=9Mi']}}\n"

// modelPolicies returns a policy that comes into force, the default one most often.
func modelPolicies(rng *rand.Rand) *policy.Policy {
	text := modelClasses + modelRules[rng.IntN(len(modelRules))]
	if rng.IntN(8) == 0 {
		text += modelBudget
	}
	pol, err := policy.ParseFile([]byte(text))
	if err != nil {
		panic(err)
	}
	switch rng.IntN(10) {
	case 4:
		pol.Floors.Bps = modelFloor
	case 0:
		pol.Mode = policy.ModeObserve
	case 1:
		pol.Writeback.Backstop = false
	case 2:
		pol.Writeback.HandOver = false
	case 3:
		pol.OnError = policy.OnError{Invalid: policy.Ignore, Unenforceable: policy.Ignore, Internal: policy.Ignore}
	}
	return pol
}
