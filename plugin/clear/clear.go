// Package clear removes the limits and weights of the plugin from running containers and pods at an operator's
// request, whether a plugin runs or not, and undoes that. It finds the cgroups by their records, and passes each
// step to its caller.
package clear

import (
	"errors"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/plugin/enforce"
	"github.com/nri-blkio/nri-blkio/plugin/health"
	"github.com/nri-blkio/nri-blkio/plugin/inspect"
	"github.com/nri-blkio/nri-blkio/plugin/record"
	"github.com/nri-blkio/nri-blkio/plugin/weights"
)

// Request selects pods, and what is done to their cgroups.
type Request struct {
	Pod    inspect.Filter // the zero value selects all pods of the node, and the node itself
	Undo   bool           // remove the marks of an earlier request, so that a running plugin restores the limits
	DryRun bool           // report the steps, and change nothing
}

// Node has what a Request for all pods needs of the node.
type Node struct {
	Cgroups  *cgroupfs.Hierarchy
	Disks    weights.Disks
	StateDir string // where the parts of run report their state
}

// Reporter gets the steps as they are made, or would be made in a dry run.
type Reporter interface {
	// Cgroup gets the steps for the cgroup of a record.
	Cgroup(r *record.Record, steps []string)
	// Node gets the steps for the node as a whole, after those for all cgroups. There may be none.
	Node(steps []string)
}

// Clearing is a Request with the cgroups that it selects.
type Clearing struct {
	Request
	records []inspect.Recorded
	unread  error // records that cannot be read
}

// Find finds the cgroups of a request. It returns an error only if it finds none for a reason.
func Find(tree *cgroupfs.Hierarchy, r Request) (*Clearing, error) {
	records, err := inspect.Records(tree, r.Pod)
	if len(records) == 0 && err != nil {
		return nil, err
	}
	if !r.Undo {
		records = append(records, inspect.PodsWithoutRecord(tree, records)...)
	}
	return &Clearing{Request: r, records: records, unread: err}, nil
}

// Pods returns the number of pods with limits or weights of the plugin.
func (c *Clearing) Pods() int {
	pods := map[inspect.Filter]bool{}
	for _, r := range c.records {
		pods[inspect.Filter{Namespace: r.Record.Namespace, Name: r.Record.Pod}] = true
	}
	return len(pods)
}

// Run makes the steps. The error is about the cgroups on which a limit may still be in force; Run clears the others.
// found is false if there was nothing to do.
func (c *Clearing) Run(n Node, to Reporter) (found bool, err error) {
	clearer := enforce.Clearer{DryRun: c.DryRun}
	step := clearer.Clear
	if c.Undo {
		step = clearer.Undo
	}
	errs := []error{c.unread}
	for _, r := range c.records {
		steps, err := step(r.Cgroup, r.Record)
		to.Cgroup(r.Record, steps)
		if err != nil && !errors.Is(err, blkio.ErrGone) {
			errs = append(errs, err)
		}
	}
	steps, err := c.node(n)
	to.Node(steps)
	return len(c.records)+len(steps) > 0, errors.Join(append(errs, err)...)
}

// node removes io.cost settings and the weights above containers, if the request is to clear all pods. If a plugin
// runs, it changes nothing, because that one removes them when it finds the marks.
func (c *Clearing) node(n Node) (steps []string, err error) {
	if c.Undo || c.Pod != (inspect.Filter{}) {
		return nil, nil
	}
	limits, err := inspect.ReadPart(n.StateDir, health.Limits)
	if err != nil {
		return nil, err
	}
	steps, err = weights.Clear(n.Cgroups, n.Disks, c.DryRun || limits.Works())
	if !limits.Works() {
		return steps, err
	}
	for i := range steps { // a plugin that was killed a moment ago counts as well, so this is not silent
		steps[i] = "leave to the plugin, which works by its last report: " + steps[i]
	}
	return steps, nil
}
