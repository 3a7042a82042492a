package inspect

import (
	"cmp"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/check"
	"github.com/nri-blkio/nri-blkio/plugin/health"
	"github.com/nri-blkio/nri-blkio/plugin/inventory"
	"github.com/nri-blkio/nri-blkio/plugin/iocost"
	"github.com/nri-blkio/nri-blkio/plugin/weights"
	"github.com/nri-blkio/nri-blkio/policy"
)

// CheckNode returns the facts that the decisions about pods depend on. layers has the locations of writable
// layers. The result must be used before the storage is closed.
func (h *Host) CheckNode(layers inventory.Layers) (check.Node, error) {
	if h.Storage == nil {
		return check.Node{}, h.StorageErr
	}
	memory, err := h.Root.MemTotal()
	if err != nil {
		return check.Node{}, err
	}
	features, err := h.Cgroups.Probe()
	if err != nil {
		return check.Node{}, err
	}
	return check.Node{Storage: h.Storage, KubeletRoot: h.KubeletRoot, Memory: memory, Missing: features.Missing(), Layers: layers}, nil
}

// CheckDisks returns io.cost of each physical disk for check, as run would decide with a policy.
// The error is about single disks whose model cannot be read; the others are returned.
func (h *Host) CheckDisks(p *policy.Policy, known weights.Disks) (map[blkio.Dev]check.Disk, error) {
	features, err := h.Cgroups.Probe()
	if err != nil {
		return nil, err
	}
	states, err := weights.Preview(h.Cgroups, p, known)
	out := make(map[blkio.Dev]check.Disk, len(states))
	for i := range states {
		s := &states[i]
		_, from := s.CostModel()
		c := newCost(s, features.Namespaced)
		out[s.Disk.Dev] = check.Disk{
			Name: s.Disk.Name, Stacked: len(s.Below) > 0, Origin: string(from), Guess: from == iocost.FromKernel, State: string(c.State), Reason: c.Reason,
		}
	}
	return out, err
}

// RunningPolicy returns the policy of the plugin that runs on this node, or the built-in one. The plugin's file can
// be missing here: that of a DaemonSet is in its pods. load reads a policy file, "" for the built-in policy, and
// replaces its mode unless mode is "".
func RunningPolicy(stateDir string, load func(file, mode string) (*policy.Policy, error)) (*policy.Policy, check.PolicySource) {
	builtIn := func(unknown string) (*policy.Policy, check.PolicySource) {
		return policy.Default(), check.PolicySource{Name: check.BuiltIn, Unknown: unknown + "; the built-in one was used"}
	}
	running, err := health.Read(stateDir, health.Limits)
	switch {
	case err != nil:
		return builtIn(err.Error())
	case running == nil:
		return policy.Default(), check.PolicySource{Name: check.BuiltIn + " (no plugin runs on this node)"}
	case running.PolicyOfRuntime:
		return builtIn("the running plugin has that of the runtime's configuration")
	}
	mode := running.Mode
	if running.RuleModes { // then --mode was not given
		mode = ""
	}
	p, err := load(running.Policy, mode)
	if err != nil {
		return builtIn("that of the running plugin cannot be read here: " + err.Error())
	}
	return p, check.PolicySource{Name: cmp.Or(running.Policy, check.BuiltIn) + " (of the running plugin), mode " + running.Mode}
}
