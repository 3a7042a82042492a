// Package enforce puts plans into force: it compares them with the cgroups of a pod, and
// writes the differences.
package enforce

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/plugin/enforce/plan"
	"github.com/nri-blkio/nri-blkio/plugin/record"
	"github.com/nri-blkio/nri-blkio/policy"
)

// Enforcer puts plans into force. It identifies containers by the IDs in the plans, and
// does not know their state. The caller acts on the results.
type Enforcer struct {
	Cgroups   *cgroupfs.Hierarchy
	IsRemoved func(blkio.Dev) bool // reports whether the disk has been removed from the node
}

// Targets holds a plan, and the results of the last reads of its cgroups. With one Targets for each plan, a
// pass over an unchanged node only reads. Only one goroutine at a time may use it.
type Targets struct {
	plan.Plan
	pod        seen   // of Plan.Pod
	containers []seen // of Plan.Containers
	written    *Written
}

// seen is the state of a cgroup when it was last read.
type seen struct {
	// texts are those of the control files at a time when the cgroup had all that the plan
	// wants. It is nil if there was no such time. While the files have these texts, there
	// is nothing to do. idle is true if the plan has nothing for the cgroup.
	texts []fileText
	idle  bool
}

// fileText is the text of a control file.
type fileText struct {
	file string
	text []byte
}

// NewTargets returns the Targets of a plan. Nothing has been read from the cgroups yet. w has what was written by the
// earlier plans of the pod.
func NewTargets(p plan.Plan, w *Written) *Targets {
	return &Targets{Plan: p, containers: make([]seen, len(p.Containers)), written: w}
}

// Result describes the writes to one cgroup.
type Result struct {
	Target *plan.Target
	// Compared is true if the cgroup was compared with the plan. It is false if the plan
	// names no cgroup, if the cgroup was removed, and if clear has removed its limits.
	Compared bool
	Cleared  bool            // clear has removed its limits
	Cgroup   cgroupfs.Cgroup // set if Compared
	// Want has the desired settings: those of the Target, and recorded ones that stay
	// because not all of the desired settings are known.
	Want       policy.Settings
	Written    []blkio.Line    // the lines written; nil if one of them failed
	Foreign    policy.Settings // the limits of other programs on the pod's cgroup, which stay
	Unreadable error           // why the former record could not be read, and was replaced
	Err        error           // blkio.ErrGone if a container has no cgroup
}

// Apply writes the differences between the plan and the cgroups of the containers and of
// the pod. With only, it writes to the cgroup of that container and to the pod's. It calls
// done after each cgroup, because the next one may hang in the kernel.
func (e *Enforcer) Apply(t *Targets, only string, done func(*Result)) {
	pod := e.inspect(&t.Pod, &t.pod, t.written)
	pod.doRaise()
	for i := range t.Containers {
		if only == "" || t.Containers[i].Container == only {
			c := e.inspect(&t.Containers[i], &t.containers[i], t.written)
			c.doRaise()
			c.doLower()
			done(&c.Result)
		}
	}
	pod.doLower()
	done(&pod.Result)
	if only == "" {
		e.sweep(&t.Plan)
		t.written.sweep(e.Cgroups)
	}
}

// IsUnchanged reports whether the control files of all cgroups have the same text as when the
// plan was in force. It uses buf to read them.
func (e *Enforcer) IsUnchanged(t *Targets, buf []byte) bool {
	if !e.isUnchanged(&t.Pod, &t.pod, buf) {
		return false
	}
	for i := range t.Containers {
		if !e.isUnchanged(&t.Containers[i], &t.containers[i], buf) {
			return false
		}
	}
	return true
}

func (e *Enforcer) isUnchanged(t *plan.Target, last *seen, buf []byte) bool {
	switch {
	case t.Cgroup == "":
		return true
	case last.idle: // and maybe removed without an event
		return t.Container == "" || e.Cgroups.Cgroup(t.Cgroup).Exists()
	case last.texts == nil:
		return false
	}
	cg := e.Cgroups.Cgroup(t.Cgroup)
	for _, before := range last.texts {
		if text, err := cg.ReadHeld(before.file, buf); err != nil || !bytes.Equal(text, before.text) {
			return false
		}
	}
	return true
}

func (c *change) write(lines []blkio.Line) ([]blkio.Line, error) {
	written, err := writeLines(lines, c.Cgroup.Write, c.isRemoved)
	c.hasRemoved = c.hasRemoved || len(written) < len(lines)
	return written, err
}

// writeLines writes the lines and returns them without those whose disk has been removed from the node. No I/O
// can go to such a disk, and its limit is written once the disk is back.
func writeLines(lines []blkio.Line, write func(blkio.Line) error, isRemoved func(blkio.Dev) bool) ([]blkio.Line, error) {
	var errs []error
	var present []blkio.Line
	for _, l := range lines {
		err := write(l)
		if !errors.Is(err, blkio.ErrNoDevice) || !isRemoved(l.Dev) {
			present, errs = append(present, l), append(errs, err)
		}
	}
	return present, errors.Join(errs...)
}

// isForeign reports whether another user may write the record.
func (c *change) isForeign() bool {
	dir, _ := record.PlaceOf(c.Cgroup, c.record.Kind)
	return record.Foreign(dir)
}

// sweep removes the records of a pod that do not count any more. These are the records of containers whose
// cgroups were removed, and those that containers have written on their own directories.
func (e *Enforcer) sweep(p *plan.Plan) {
	dirs := map[cgroupfs.Cgroup]bool{}
	if p.Pod.Cgroup != "" {
		dirs[e.Cgroups.Cgroup(p.Pod.Cgroup)] = true
	}
	for i := range p.Containers {
		cg := e.Cgroups.Cgroup(p.Containers[i].Cgroup)
		dir, _ := record.PlaceOf(cg, record.KindContainer)
		dirs[dir] = true
		_ = cg.RemoveXattr(record.Xattr) // it does no harm
	}
	for dir := range dirs {
		recorded, err := dir.ListAbove(record.Xattr)
		if err != nil {
			continue // it was removed, and all records with it
		}
		for _, cg := range recorded {
			if !cg.Exists() {
				_ = record.Remove(cg, record.KindContainer) // the next pass tries again
			}
		}
	}
}

// Controls finds out which controls have an effect on this node. It is safe for concurrent use.
type Controls struct {
	Cgroups *cgroupfs.Hierarchy
	missing atomic.Pointer[[]string] // nil as long as no cgroup has the io controller
	// enabled are the disks with io.cost enabled; nil if they are not known.
	enabled atomic.Pointer[map[blkio.Dev]bool]
	bfq     atomic.Pointer[map[blkio.Dev]bool] // plan.Controls.BFQ; nil before it is known
}

// Missing returns those of io.max and io.weight that the kernel does not have. On a node without containers no
// cgroup has the io controller, so that is unknown. Then Missing returns none, and the next call reads it
// again. If the kernel has no such file, the runtime fails the creation of the container, so no limit and no weight
// is dropped silently.
func (c *Controls) Missing() []string {
	if known := c.missing.Load(); known != nil {
		return *known
	}
	f, err := c.Cgroups.Probe()
	if err != nil || f.IOMax == blkio.Unknown {
		return nil
	}
	missing := f.Missing()
	c.missing.Store(&missing)
	return missing
}

// Refresh reads io.cost.qos of the root cgroup to find the disks that have io.cost enabled. It
// reports whether these disks differ from those of the last call. The first call reports true.
func (c *Controls) Refresh() bool {
	qos, err := c.Cgroups.ReadIOCostQOS()
	var enabled map[blkio.Dev]bool // nil if unknown: Refresh then does not warn
	if err == nil || errors.Is(err, blkio.ErrNotSupported) && slices.Contains(c.Missing(), blkio.IOWeight) {
		enabled = make(map[blkio.Dev]bool)
	}
	for dev, line := range qos {
		if line.Enabled {
			enabled[dev] = true
		}
	}
	before := c.enabled.Swap(&enabled)
	return before == nil || (*before == nil) != (enabled == nil) || !maps.Equal(*before, enabled)
}

// SetBFQ sets plan.Controls.BFQ.
func (c *Controls) SetBFQ(disks map[blkio.Dev]bool) { c.bfq.Store(&disks) }

// Work reports whether weights may have had an effect at the last call of Refresh.
func (c *Controls) Work() bool { return c.Effect().Work() }

// Effect returns the effect of controls on this node.
func (c *Controls) Effect() plan.Controls {
	out := plan.Controls{Missing: c.Missing()}
	if bfq := c.bfq.Load(); bfq != nil {
		out.BFQ = *bfq
	}
	if enabled := c.enabled.Load(); enabled != nil {
		out.Enabled = *enabled
	}
	return out
}

// Clearer removes recorded limits from cgroups at an operator's request, whether a plugin runs
// or not.
type Clearer struct {
	DryRun bool // report the steps, and change nothing
}

// Clear marks a cgroup, then removes the limits of its record: in the other order a running
// plugin could restore them in between. It returns the steps that were made, also with an error.
func (c *Clearer) Clear(cg cgroupfs.Cgroup, r *record.Record) (steps []string, err error) {
	if !r.Cleared {
		if err := c.mark(cg, r, true); err != nil {
			return nil, err
		}
		steps = append(steps, "mark as cleared")
	}
	if r.Observed {
		return steps, nil // nothing was written
	}
	removed, err := c.remove(cg, r)
	again, verifyErr := c.verify(cg, r.Kind)
	return append(append(steps, removed...), again...), errors.Join(err, verifyErr)
}

// Undo removes the mark, so that a running plugin restores the limits.
func (c *Clearer) Undo(cg cgroupfs.Cgroup, r *record.Record) (steps []string, err error) {
	if !r.Cleared {
		return nil, nil
	}
	if err := c.mark(cg, r, false); err != nil {
		return nil, err
	}
	return []string{"remove the mark, the plugin restores the limits"}, nil
}

func (c *Clearer) remove(cg cgroupfs.Cgroup, r *record.Record) (steps []string, err error) {
	var errs []error
	for _, line := range r.Settings.Removals().Lines() {
		var err error
		if !c.DryRun {
			err = cg.Write(line)
		}
		switch {
		case errors.Is(err, blkio.ErrNoDevice): // the disk was removed, and its limits with it
		case err != nil:
			errs = append(errs, err)
		default:
			steps = append(steps, fmt.Sprintf("write %s %q", line.File, line.Text))
		}
	}
	if !c.DryRun && r.Kind == record.KindContainer {
		errs = append(errs, cg.ReplaceIOMaxBelow(removalsBelow(r)))
	}
	return steps, errors.Join(errs...)
}

// verify marks the cgroup once more if the plugin, which was inspecting it when it was marked,
// has written its record again.
func (c *Clearer) verify(cg cgroupfs.Cgroup, kind string) (steps []string, err error) {
	if c.DryRun {
		return nil, nil
	}
	now, err := record.Read(cg, kind)
	if err != nil || now == nil || now.Cleared {
		return nil, err
	}
	if err := c.mark(cg, now, true); err != nil {
		return nil, err
	}
	return c.remove(cg, now)
}

func (c *Clearer) mark(cg cgroupfs.Cgroup, r *record.Record, cleared bool) error {
	if c.DryRun {
		return nil
	}
	marked := *r
	marked.Cleared = cleared
	return record.Write(cg, &marked)
}

// removalsBelow returns the lines that remove a record's limits from a cgroup that the runtime has below the
// container's.
func removalsBelow(r *record.Record) []blkio.Replacement {
	var out []blkio.Replacement
	for _, s := range r.Settings {
		if s.IsLimit() {
			out = append(out, blkio.Replacement{Address: s.Address, From: s.Amount, To: s.Removal().Amount})
		}
	}
	return out
}
