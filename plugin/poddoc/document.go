package poddoc

import "github.com/nri-blkio/nri-blkio/policy"

// Version is the version of the documents that this package writes.
const Version = 1

// Bounds of a document. They are far above what pods have; a document that reaches them would be
// of a hostile author.
const (
	MaxSize        = 72 << 10 // bytes of a file
	MaxDocuments   = 4096     // names in a directory
	MaxVolumes     = 128      // claims of a pod
	MaxAnnotations = 64       // the bound of package annotation
	MaxText        = 4 << 10  // bytes of a claim's annotation
	MaxRate        = 64       // bytes of a rate in a class
)

// Bounds of the parts of a document, in bytes as encoded. They leave room for the rest.
const (
	maxAnnotationBytes = 28 << 10
	maxLabelBytes      = 8 << 10 // of the pod, and of its namespace
	maxVolumeBytes     = 27 << 10
)

// ClaimKey is the annotation of a claim with its limits.
const ClaimKey = "limits.blkio.noderesource.dev"

// The parts of a document or of a volume that can be omitted.
const (
	PartAnnotations     = "annotations"
	PartLabels          = "labels"
	PartNamespaceLabels = "namespaceLabels"
	PartVolumes         = "volumes"
	PartLimits          = "limits"     // of a volume
	PartParameters      = "parameters" // of a class of a volume
)

// NotRead is the cause of parts that are omitted because the API server has not answered yet.
const NotRead = "not read yet"

// Document is what the API server knows about one pod.
type Document struct {
	Version   int    `json:"version"`
	UID       string `json:"uid"` // as the runtime knows it: for a static pod not the one of the API server
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Annotations are those with the plugin's domain, valid or not.
	Annotations map[string]string `json:"annotations,omitempty"`
	// Labels are all labels of the pod: rules select pods by them.
	Labels          map[string]string `json:"labels,omitempty"`
	NamespaceLabels map[string]string `json:"namespaceLabels,omitempty"`
	// Volumes are those that are claims, sorted by name.
	Volumes []policy.ClaimVolume `json:"volumes,omitempty"`
	// Omitted has the parts that are too large to be passed on, or [NotRead], each with the cause. They are unknown
	// to the reader, not empty.
	Omitted map[string]string `json:"omitted,omitempty"`
}

// IsOf reports whether the document is that of a pod of the runtime.
func (d *Document) IsOf(uid, namespace, name string) bool {
	return d.UID == uid && d.Namespace == namespace && d.Name == name
}
