package enforce

import (
	"bytes"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/plugin/enforce/plan"
	"github.com/nri-blkio/nri-blkio/policy"
)

// Enforcer puts plans into force. It knows containers by the IDs in the plans, and nothing
// of their state: what follows from a Result is for its caller to decide.
type Enforcer struct {
	Cgroups *cgroupfs.Hierarchy
	Gone    func(blkio.Dev) bool // reports whether the node has no such disk
}

// Targets are the cgroups of a plan. They are made once for each plan, so that a pass over a
// quiet node is reading only. One goroutine at a time may use them.
type Targets struct {
	plan.Plan
	pod        seen   // of Plan.Pod
	containers []seen // of Plan.Containers
}

// seen is what the last look at a cgroup has found.
type seen struct {
	// quiet is how the control files read when all that should be there was in place, record
	// and all. As long as they read so there is nothing more to look at; idle says
	// that there is nothing to look at at all.
	quiet []fileText
	idle  bool
}

// fileText is what a control file has read as.
type fileText struct {
	file string
	text []byte
}

// NewTargets returns the cgroups of a plan, at which no look was taken yet.
func NewTargets(p plan.Plan) *Targets {
	return &Targets{Plan: p, containers: make([]seen, len(p.Containers))}
}

// Result is what was done to one cgroup.
type Result struct {
	Target *plan.Target
	// Looked is false if nothing was to be done to the cgroup: the plan names none, it has
	// gone, or clear has removed its limits.
	Looked bool
	Cgroup cgroupfs.Cgroup // if Looked
	// Want is what should be on the cgroup: the target's, and what stays because not all is
	// known.
	Want       policy.Settings
	Written    []blkio.Line // none if one could not be written
	Unreadable error        // why the record that was there had to be replaced
	Err        error        // blkio.ErrGone if a container has no cgroup
}

// Apply writes what differs from a plan: to the cgroups of the containers, or only to that of
// one of them, and to the pod's own. It calls done after each, since the next one may hang
// in the kernel.
func (e *Enforcer) Apply(t *Targets, only string, done func(*Result)) {
	pod := e.inspect(&t.Pod, &t.pod)
	pod.doRaise()
	for i := range t.Containers {
		if only == "" || t.Containers[i].Container == only {
			c := e.inspect(&t.Containers[i], &t.containers[i])
			c.doRaise()
			c.doLower()
			done(&c.Result)
		}
	}
	pod.doLower()
	done(&pod.Result)
	if only == "" {
		e.sweep(&t.Plan)
	}
}

// IsQuiet reports whether the control files read as they did when all was in place. buf
// is a buffer for them.
func (e *Enforcer) IsQuiet(t *Targets, buf []byte) bool {
	if !e.isQuiet(&t.Pod, &t.pod, buf) {
		return false
	}
	for i := range t.Containers {
		if !e.isQuiet(&t.Containers[i], &t.containers[i], buf) {
			return false
		}
	}
	return true
}

func (e *Enforcer) isQuiet(t *plan.Target, last *seen, buf []byte) bool {
	switch {
	case t.Cgroup == "":
		return true
	case last.idle: // and maybe removed without an event
		return t.Container == "" || e.Cgroups.Cgroup(t.Cgroup).Exists()
	case last.quiet == nil:
		return false
	}
	cg := e.Cgroups.Cgroup(t.Cgroup)
	for _, before := range last.quiet {
		if text, err := cg.ReadText(before.file, buf); err != nil || !bytes.Equal(text, before.text) {
			return false
		}
	}
	return true
}
