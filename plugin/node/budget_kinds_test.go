package node

import (
	"slices"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy"
)

// wantedKind is a way in which a pod asks for limits, with what each container counts for on the two disks.
type wantedKind struct {
	each, total string
	own, bound  [2]blkio.Amount // on vda and vdb; bound is blkio.Max for none
	// init is true if the first container of each sandbox is an init container, whose mount alone gives the pod its limit on vdb.
	init bool
	// volume is true if the data is on a logical volume of vda, and not on vdb.
	volume bool
}

func wantedKinds() []wantedKind {
	const mi, none = 1 << 20, blkio.Max
	return []wantedKind{
		{each: "* wbps=60Mi", own: [2]blkio.Amount{60 * mi, 60 * mi}, bound: [2]blkio.Amount{none, none}},
		{each: "rootfs wbps=30Mi; /data wbps=90Mi", own: [2]blkio.Amount{30 * mi, 90 * mi}, bound: [2]blkio.Amount{none, none}},
		{each: "* wbps=50Mi", total: "* wbps=80Mi", own: [2]blkio.Amount{50 * mi, 50 * mi}, bound: [2]blkio.Amount{80 * mi, 80 * mi}},
		{total: "* wbps=70Mi", own: [2]blkio.Amount{none, none}, bound: [2]blkio.Amount{70 * mi, 70 * mi}},
		{each: "rootfs wbps=40Mi", total: "/data wbps=20Mi", own: [2]blkio.Amount{40 * mi, none}, bound: [2]blkio.Amount{none, 20 * mi}},
		{total: "rootfs wbps=40Mi; /init wbps=10Mi", own: [2]blkio.Amount{none, none}, bound: [2]blkio.Amount{40 * mi, 10 * mi}, init: true},
		{own: [2]blkio.Amount{none, none}, bound: [2]blkio.Amount{none, none}},
		{each: "rootfs wbps=10Mi; /data wbps=25Mi", own: [2]blkio.Amount{35 * mi, 0}, bound: [2]blkio.Amount{none, none}, volume: true},
	}
}

type sumPod struct {
	kind       wantedKind
	sandboxes  []*Sandbox // the last one is the current one
	containers []*sumContainer
	begun      *Sandbox // the sandbox that has had its init container
}

type sumContainer struct {
	*Container
	sb    *Sandbox
	ended bool
	told  bool // of its end, or that another one has taken its place
}

// of returns the sum of a pod on each disk, without the containers of a name.
func (p *sumPod) of(except string, added int) (out [2]blkio.Amount) {
	for disk := range out {
		for _, c := range p.containers {
			if !c.told && c.Name != except {
				out[disk] = policy.Plus(out[disk], p.kind.own[disk])
			}
		}
		for range added {
			out[disk] = policy.Plus(out[disk], p.kind.own[disk])
		}
		out[disk] = min(out[disk], p.kind.bound[disk])
		if added == 0 && !slices.ContainsFunc(p.containers, func(c *sumContainer) bool { return !c.told && c.Name != except }) {
			out[disk] = 0
		}
	}
	return out
}
