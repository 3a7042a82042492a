package inspect

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/check"
	"github.com/nri-blkio/nri-blkio/plugin/health"
	"github.com/nri-blkio/nri-blkio/plugin/inventory"
	"github.com/nri-blkio/nri-blkio/plugin/iocost"
	"github.com/nri-blkio/nri-blkio/plugin/shares"
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
	controls, err := h.controls()
	if err != nil {
		return check.Node{}, err
	}
	stack, err := h.Sysfs.Stack()
	if err != nil {
		return check.Node{}, err
	}
	return check.Node{
		Storage: h.Storage, KubeletRoot: h.KubeletRoot, Memory: memory, Controls: controls,
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
	features, err := h.Cgroups.Probe()
	if err != nil {
		return nil, err
	}
	states, err := weights.Preview(h.Cgroups, p, known)
	out := make(map[blkio.Dev]check.Disk, len(states))
	for i := range states {
		s := &states[i]
		model, from := s.CostModel()
		c := newCost(s, features.Namespaced)
		out[s.Disk.Dev] = check.Disk{
			Name: s.Disk.Name, Stacked: len(s.Below) > 0, Model: model, Origin: string(from), Guess: from == iocost.FromKernel, Random: s.Rates(), State: string(c.State), Reason: c.Reason,
		}
	}
	return out, err
}

// CheckShare returns a function by which check computes the shares of a pod that joins those on the node.
// Without an error the function also knows the running containers.
func (h *Host) CheckShare() (func(blkio.Dev, check.Joining) check.Shares, error) {
	records, err := Records(h.Cgroups, Filter{})
	given := map[string]blkio.Weights{}
	for _, r := range records {
		if r.Record.HasWeight() {
			given[r.Cgroup.Path()] = r.Record.IOWeight()
		}
	}
	now, readErr := shares.ReadSnapshot(h.Cgroups, given)
	return func(disk blkio.Dev, pod check.Joining) check.Shares {
		tree, names := treeOf(pod)
		out := check.Shares{BesideOne: besideOne(tree, names)}
		if now != nil {
			byPath, rivals := now.Beside(disk, tree)
			out.AtLeast, out.Rivals = podShares(byPath, names), rivals
		}
		return out
	}, errors.Join(err, readErr)
}

// joiningPath stands for the cgroup of a pod that does not exist yet.
const joiningPath = "joining"

// treeOf returns a pod all of whose containers are active, and the paths of these.
func treeOf(pod check.Joining) (tree shares.Cgroup, paths []string) {
	tree = shares.Cgroup{Path: joiningPath, Weight: pod.Weight, Budget: pod.Budget, Active: true}
	for i, weight := range pod.Containers {
		paths = append(paths, fmt.Sprint(joiningPath, "/", i))
		tree.Children = append(tree.Children, shares.Cgroup{Path: paths[i], Weight: weight, Active: true})
	}
	return tree, paths
}

// besideOne returns the share of each container while it is the only one of its pod that uses the disk, and the
// share of the pod while all of them do. One other container uses the disk at the same time.
func besideOne(tree shares.Cgroup, paths []string) check.PodShares {
	other := []shares.Cgroup{{Path: "other", Weight: blkio.DefaultWeight, Active: true}}
	out := podShares(shares.Beside(other, tree), paths)
	for i, p := range paths {
		alone := tree
		alone.Children = slices.Clone(tree.Children)
		for k := range alone.Children {
			alone.Children[k].Active = k == i
		}
		out.Containers[i] = shares.Beside(other, alone)[p]
	}
	return out
}

func podShares(byPath map[string]float64, paths []string) check.PodShares {
	out := check.PodShares{Pod: byPath[joiningPath]}
	for _, p := range paths {
		out.Containers = append(out.Containers, byPath[p])
	}
	return out
}

// controls reads the effect of io.max and io.weight on this node.
func (h *Host) controls() (check.Controls, error) {
	features, err := h.Cgroups.Probe()
	if err != nil {
		return check.Controls{}, err
	}
	c := check.Controls{Missing: features.Missing(), IOCost: blkio.No}
	qos, err := h.Cgroups.ReadIOCostQOS()
	if err != nil && !errors.Is(err, blkio.ErrNotSupported) {
		return c, err
	}
	for _, line := range qos {
		if line.Enabled {
			c.IOCost = blkio.Yes
		}
	}
	return c, nil
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
