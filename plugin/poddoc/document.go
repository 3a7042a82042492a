package poddoc

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
	Volumes []Volume `json:"volumes,omitempty"`
	// Omitted has the parts that are too large to be passed on, or [NotRead], each with the cause. They are unknown
	// to the reader, not empty.
	Omitted map[string]string `json:"omitted,omitempty"`
}

// Volume is a volume of a pod that is a claim.
type Volume struct {
	Name  string `json:"name"`  // in the pod
	Claim string `json:"claim"` // for an ephemeral volume, that of the generated claim
	// Absent is true if there is no such claim.
	Absent bool `json:"absent,omitempty"`
	// PersistentVolume is empty while the claim is not bound.
	PersistentVolume string `json:"persistentVolume,omitempty"`
	// Mounts are sorted by container and path.
	Mounts []Mount `json:"mounts,omitempty"`
	// Limits is the text of the claim's annotation; nil without one.
	Limits *string `json:"limits,omitempty"`
	// Class is the VolumeAttributesClass that the claim asks for, nil without one. Whether the CSI
	// driver has applied it does not matter: the plugin enforces the rates itself.
	Class   *Class            `json:"class,omitempty"`
	Omitted map[string]string `json:"omitted,omitempty"`
}

// Mount is a place where a container has a volume.
type Mount struct {
	Container string `json:"container"`
	Path      string `json:"path"` // absolute and clean; of a device for a raw block volume
}

// Class is a class of a claim, with the rates among its parameters.
type Class struct {
	Name string `json:"name"`
	// Absent is true if there is no such class.
	Absent bool `json:"absent,omitempty"`
	// Rates has the text of each rate by the key of the parameter, one of [Parameters].
	Rates map[string]string `json:"rates,omitempty"`
}

// Rates returns the names of the rates, which are the keys of a limit.
func Rates() []string { return []string{"rbps", "wbps", "riops", "wiops"} }

// OwnPrefix is the prefix of the rates in the parameters of a class.
const OwnPrefix = "blkio.noderesource.dev/"

// Parameters returns the keys of rates in the parameters of a class: each plain, and with [OwnPrefix].
func Parameters() []string {
	var out []string
	for _, prefix := range []string{"", OwnPrefix} {
		for _, rate := range Rates() {
			out = append(out, prefix+rate)
		}
	}
	return out
}

// IsOf reports whether the document is that of a pod of the runtime.
func (d *Document) IsOf(uid, namespace, name string) bool {
	return d.UID == uid && d.Namespace == namespace && d.Name == name
}
