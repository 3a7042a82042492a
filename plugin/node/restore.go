package node

import (
	"errors"
	"fmt"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/record"
	"github.com/nri-blkio/nri-blkio/policy"
)

// A restarted plugin gets the annotations and labels of a pod from the runtime, as they were when the sandbox was made.
// Those of a live change are in the pod's record, because the API server may not have them any more: the last edit may
// be invalid, and the cluster part may be away.

// record returns the form of a request in the record of its pod, with containers of these kinds. It is nil if all of it is what the
// runtime reports.
func (r *request) record(sandbox string, kinds []policy.ContainerKind) *record.Edit {
	out := &record.Edit{Sandbox: sandbox, NamespaceLabels: r.facts.NamespaceLabels}
	if of := r.facts.Kinds.Of(kinds); len(of) > 0 { // otherwise it makes no difference whether they are known
		out.ContainerKinds = of
	}
	if r.edited == (edited{}) && out.NamespaceLabels == nil && out.ContainerKinds == nil {
		return nil
	}
	if r.edited.annotations {
		out.Annotations = r.annotations
	}
	if r.edited.labels {
		out.Labels = r.facts.Labels
	}
	return out
}

// restored returns a request with those parts of a recorded edit for which there is no newer one.
func (r *request) restored(from *record.Edit) *request {
	out := r
	if from.Annotations != nil && !r.edited.annotations {
		out = out.with(from.Annotations)
	}
	if from.Labels != nil && !r.edited.labels {
		out = out.withLabels(from.Labels)
	}
	if from.NamespaceLabels != nil && r.facts.NamespaceLabels == nil {
		out = out.inNamespace(from.NamespaceLabels)
	}
	if from.ContainerKinds != nil && r.facts.Kinds == nil {
		out = out.withKinds(from.ContainerKinds)
	}
	return out
}

// restoreEdits takes over edited annotations and labels of the pods of a group, what else only the API server knows, and the
// limits of the pods as a whole, from the record of an earlier process. It reads until that succeeds once for each sandbox.
func (a applier) restoreEdits(g groupIdentity) error {
	if g.cgroup == "" || !a.pods.mayRestore(g) {
		return nil
	}
	r, err := record.Read(a.cgroups.Cgroup(g.cgroup), record.KindPod)
	switch {
	case errors.Is(err, blkio.ErrGone):
		return nil // not created yet
	case err != nil && !errors.Is(err, record.ErrParse) && !errors.Is(err, blkio.ErrNotSupported):
		return fmt.Errorf("read an earlier edit: %w", err)
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

// restore takes over an edit and limits from a record, which is nil if there is none. Annotations and labels of another sandbox are older
// than what the runtime reports for this one.
func (t *podTable) restore(of groupIdentity, r *record.Record) {
	s := t.state.Lock()
	defer t.state.Unlock()
	for _, p := range of.in(s).pods {
		if p.restored {
			continue
		}
		p.restored = true
		if r == nil || r.UID != p.uid {
			continue
		}
		if !p.isNew { // otherwise all containers of the sandbox are known
			p.former = r.Granted()
		}
		if r.Edit == nil {
			continue
		}
		from := *r.Edit
		if from.Sandbox != p.id {
			from.Annotations, from.Labels = nil, nil
		}
		now := p.request.now.Load()
		if next := now.restored(&from); next != now {
			s.replaceRequest(p, next)
			s.revise(p)
		}
	}
}
