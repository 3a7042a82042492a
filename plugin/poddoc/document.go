package poddoc

import "github.com/nri-blkio/nri-blkio/plugin/podfacts"

// Version is the version of the documents that this package writes.
const Version = 1

// Bounds of a document. They are far above what pods have; a document that reaches them would be
// of a hostile author.
const (
	MaxSize      = 72 << 10 // bytes of a file
	MaxDocuments = 4096     // names in a directory
	MaxVolumes   = 128      // volumes of a pod, but those whose name the runtime sees
	MaxPlaces    = 1000     // where the containers of a pod have them; a document has no room for so many
	MaxText      = 4 << 10  // bytes of a claim's annotation
	MaxRate      = 64       // bytes of a rate in a class, or of a storage driver
)

// Bounds of the parts of a document beside the annotations, in bytes as encoded. They leave room for the rest.
const (
	MaxLabelBytes  = 8 << 10 // of the pod, and of its namespace
	maxVolumeBytes = 27 << 10
)

// ClaimKey is the annotation of a claim with its limits.
const ClaimKey = "limits.blkio.noderesource.dev"

// The parts of a volume that can be omitted.
const (
	PartLimits     = "limits"
	PartParameters = "parameters" // of its class
	PartMetadata   = "metadata"   // of its attachment
)

// Document is what the API server knows about one pod. A part that is nil is unknown to it, or too large: then Omitted has the cause.
type Document struct {
	Version int    `json:"version"`
	UID     string `json:"uid"` // as the runtime knows it: for a static pod not the one of the API server
	podfacts.Facts
}
