package podfacts

import "github.com/nri-blkio/nri-blkio/policy"

// Edit is the form of a request in the record of its pod. Annotations and labels were edited while the pod ran. Those that are nil are
// the ones that the runtime reports. Those that are empty were all removed.
type Edit struct {
	Sandbox     string            `json:"sandbox"` // ID of the sandbox that the pod had
	Annotations map[string]string `json:"annotations,omitzero"`
	Labels      map[string]string `json:"labels,omitzero"`
	// NamespaceLabels are those labels of the pod's namespace by which rules of the policy select. The runtime never reports them.
	NamespaceLabels policy.NamespaceLabels `json:"namespaceLabels,omitzero"`
}

// Size returns the bytes that an edit takes in a record. e may be nil.
func (e *Edit) Size() int {
	if e == nil {
		return 0
	}
	return len(`,"edit":`) + size(e) - len("\n")
}

// Edit returns the form of a request in the record of its pod. It is nil if all of it is what the runtime reports. Volumes are not in the
// record: the limits that were granted for them are.
func (r *Request) Edit(sandbox string) *Edit {
	out := &Edit{Sandbox: sandbox, NamespaceLabels: r.NamespaceLabels}
	if !r.edited.Has(Annotations|Labels) && out.NamespaceLabels == nil {
		return nil
	}
	if r.edited.Has(Annotations) {
		out.Annotations = r.Annotations
	}
	if r.edited.Has(Labels) {
		out.Labels = r.Labels
	}
	return out
}

// Restored returns a request with those parts of a recorded edit for which there is no newer one. Annotations and labels of another
// sandbox are older than what the runtime reports for this one.
func (r *Request) Restored(from *Edit, sandbox string) *Request {
	edited := Facts{Annotations: from.Annotations, Labels: from.Labels}
	recorded, missing := edited.Request("", ""), Parts(0)
	recorded.NamespaceLabels = from.NamespaceLabels
	if from.Sandbox == sandbox {
		missing = (Annotations | Labels) &^ r.edited
	}
	if r.NamespaceLabels == nil {
		missing |= Namespace
	}
	return r.With(recorded, missing)
}
