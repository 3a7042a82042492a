package poddoc

import (
	"github.com/nri-blkio/nri-blkio/plugin/mailbox"
	"github.com/nri-blkio/nri-blkio/plugin/podfacts"
	"github.com/nri-blkio/nri-blkio/policy"
)

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

// Format returns the form of the documents in the exchange directory.
func Format() mailbox.Format[Document] {
	return mailbox.Format[Document]{
		Version: Version, MaxSize: MaxSize, MaxFiles: MaxDocuments, MaxKept: maxKept,
		Of:       func(d *Document) (uid, namespace string) { return d.UID, d.Namespace },
		Size:     (*Document).size,
		Validate: (*Document).validate,
	}
}

const (
	// maxKept bounds the memory in bytes of all documents of a node. 250 pods with the longest annotations and labels, 60 of
	// both and of the labels of namespaces, and with 20 KiB of claims have less.
	maxKept = 22 << 20
	// entrySize is the memory in bytes that an annotation, a label or a part of a claim takes, without its text.
	entrySize = 96
	// maxLabels bounds the memory in bytes of the labels of a pod.
	maxLabels = podfacts.LabelRoom * entrySize / podfacts.LabelSize
)

// size returns the memory in bytes of what a receiver keeps of a document.
func (d *Document) size() (size int) {
	// No more labels than this are kept, see podfacts.Facts.WithinRoom.
	size = entriesSize(d.Annotations) + entriesSize(d.NamespaceLabels) + min(entriesSize(d.Labels), maxLabels) + len(d.Owner.Name) + len(d.Owner.UID)
	for i := range d.Volumes {
		size += volumeSize(&d.Volumes[i])
	}
	return size
}

func entriesSize(entries map[string]string) (size int) {
	for key, value := range entries {
		size += entrySize + len(key) + len(value)
	}
	return size
}

func volumeSize(v *policy.Volume) int {
	size := entrySize + len(v.Name) + len(v.Claim)
	if v.Limits != nil {
		size += len(*v.Limits)
	}
	for _, m := range v.Places {
		size += entrySize + len(m.Container) + len(m.Path)
	}
	if c := v.Class; c != nil {
		size += entrySize + len(c.Name) + entriesSize(c.Rates)
	}
	if a := v.Attachment; a != nil {
		size += entrySize + len(a.Driver) + entriesSize(a.Rates)
	}
	return size
}
