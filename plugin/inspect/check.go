package inspect

import (
	"errors"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/check"
	"github.com/nri-blkio/nri-blkio/plugin/inventory"
	"github.com/nri-blkio/nri-blkio/plugin/iocost"
	"github.com/nri-blkio/nri-blkio/plugin/weights"
	"github.com/nri-blkio/nri-blkio/policy"
)

// CheckNode returns what the decisions about pods depend on. layers are the locations of writable
// layers. The result is used before the storage is closed.
func (h *Host) CheckNode(layers inventory.Layers) (check.Node, error) {
	if h.Storage == nil {
		return check.Node{}, h.StorageErr
	}
	memory, err := h.Root.MemTotal()
	if err != nil {
		return check.Node{}, err
	}
	weights, err := h.weights()
	if err != nil {
		return check.Node{}, err
	}
	stack, err := h.Sysfs.Stack()
	if err != nil {
		return check.Node{}, err
	}
	return check.Node{
		Storage: h.Storage, KubeletRoot: h.KubeletRoot, Memory: memory, Weights: weights,
		Layers: layers,
		Shared: func(limited map[string]bool) (warnings []string) {
			for _, d := range SharedDisks(limited, stack) {
				warnings = append(warnings, d.String())
			}
			return warnings
		},
	}, nil
}

// CheckDisks returns io.cost of each physical disk for check, as run would decide with a policy.
// The error is about single disks whose model cannot be read; the others are returned.
func (h *Host) CheckDisks(p *policy.Policy, known weights.Disks) (map[blkio.Dev]check.Disk, error) {
	states, err := weights.Preview(h.Cgroups, p, known)
	out := make(map[blkio.Dev]check.Disk, len(states))
	for i := range states {
		s := &states[i]
		model, from := s.CostModel()
		out[s.Disk.Dev] = check.Disk{
			Model: model, Origin: string(from), Guess: from == iocost.FromKernel, Random: s.Rates(), State: string(newCost(s, false).State), Reason: s.Reason,
		}
	}
	return out, err
}

// weights reads what io.weight does on this node.
func (h *Host) weights() (check.Weights, error) {
	features, err := h.Cgroups.Probe()
	if err != nil {
		return check.Weights{}, err
	}
	w := check.Weights{Kernel: features.IOWeight, IOCost: blkio.No}
	qos, err := h.Cgroups.ReadIOCostQOS()
	if err != nil && !errors.Is(err, blkio.ErrNotSupported) {
		return w, err
	}
	for _, line := range qos {
		if line.Enabled {
			w.IOCost = blkio.Yes
		}
	}
	disks, err := h.Sysfs.Disks()
	if err != nil {
		return w, err
	}
	for _, d := range disks {
		if d.Scheduler == "bfq" {
			w.BFQ = append(w.BFQ, d.Name)
		}
	}
	return w, nil
}
