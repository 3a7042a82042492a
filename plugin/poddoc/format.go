package poddoc

import (
	"github.com/nri-blkio/nri-blkio/plugin/mailbox"
	"github.com/nri-blkio/nri-blkio/plugin/podfacts"
	"github.com/nri-blkio/nri-blkio/policy"
)

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
