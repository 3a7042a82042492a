package enforce

import (
	"bytes"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/plugin/enforce/plan"
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
