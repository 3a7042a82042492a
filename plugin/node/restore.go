package node

import (
	"errors"
	"fmt"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/record"
)

// A restarted plugin gets the annotations of a pod from the runtime, as they were when the sandbox was made. Those of a
// live change are in the pod's record, because the API server may not have them any more: the last edit may be
// invalid, and the cluster part may be away.

// record returns the form of a request in the record of its pod, nil if the runtime reports the annotations.
func (r *request) record(sandbox string) *record.Edit {
	if !r.isEdited {
		return nil
	}
	return &record.Edit{Sandbox: sandbox, Annotations: r.annotations}
}

// restoreEdits takes over edited annotations of the pods of a group from the record of an earlier process. It reads until
// that succeeds once for each sandbox.
func (a applier) restoreEdits(g groupIdentity) error {
	if g.cgroup == "" || !a.pods.mayRestore(g) {
		return nil
	}
	r, err := record.Read(a.cgroups.Cgroup(g.cgroup), record.KindPod)
	switch {
	case errors.Is(err, blkio.ErrGone):
		return nil // not created yet
	case err != nil && !errors.Is(err, record.ErrParse) && !errors.Is(err, blkio.ErrNotSupported):
		return fmt.Errorf("read edited annotations: %w", err)
	}
	a.pods.restore(g, r)
	return nil
}

func (t *podTable) mayRestore(of groupIdentity) bool {
	s := t.state.Lock()
	defer t.state.Unlock()
	for _, p := range of.in(s).pods {
		if !p.restored {
			return true
		}
	}
	return false
}

// restore takes over edited annotations from a record, which is nil if there is none. The annotations of another sandbox
// are older than those that the runtime reports for this one.
func (t *podTable) restore(of groupIdentity, r *record.Record) {
	s := t.state.Lock()
	defer t.state.Unlock()
	for _, p := range of.in(s).pods {
		if p.restored {
			continue
		}
		p.restored = true
		now := p.request.now.Load()
		if r == nil || r.Edit == nil || r.Edit.Sandbox != p.id || r.UID != p.uid || now.isEdited {
			continue
		}
		s.replaceRequest(p, now.with(r.Edit.Annotations))
		s.revise(p)
	}
}
