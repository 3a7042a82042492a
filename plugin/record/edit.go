package record

// Edit has annotations and labels that were edited while their pod ran. Those that are nil are the ones that the runtime
// reports. Those that are empty were all removed.
type Edit struct {
	Sandbox     string // ID of the sandbox that the pod had
	Annotations map[string]string
	Labels      map[string]string
	// NamespaceLabels are those labels of the pod's namespace by which rules of the policy select, nil for one that the
	// namespace does not have. The runtime never reports them.
	NamespaceLabels map[string]*string
}

// wireEdit is an Edit as JSON.
type wireEdit struct {
	Sandbox         string             `json:"sandbox"`
	Annotations     map[string]string  `json:"annotations,omitzero"`
	Labels          map[string]string  `json:"labels,omitzero"`
	NamespaceLabels map[string]*string `json:"namespaceLabels,omitzero"`
}

// MaxEdit is the largest size of an edit, in bytes. A larger one could leave no room for the rest of the pod's record:
// the record is then too large, which is an error, and never written without the edit. A restarted process would fall
// back to the annotations before.
const MaxEdit = 45 << 10

// Size returns the bytes that an edit takes in a record. e may be nil.
func (e *Edit) Size() int {
	if e == nil {
		return 0
	}
	return len(`,"edit":`) + len(encode((*wireEdit)(e)))
}
