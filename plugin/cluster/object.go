package cluster

import (
	"crypto/sha256"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/nri-blkio/nri-blkio/plugin/poddoc"
	"github.com/nri-blkio/nri-blkio/plugin/podfacts"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// Kind is a kind of objects of the API server.
type Kind string

// The kinds that the part reads.
const (
	Pods              Kind = "pods" // all of the node
	Namespaces        Kind = "namespaces"
	Claims            Kind = "persistentvolumeclaims"
	AttributesClasses Kind = "volumeattributesclasses"
	Volumes           Kind = "persistentvolumes"
	Attachments       Kind = "volumeattachments"
)

// Ref names what a watch is of: one object, or with [Pods] all pods of the node.
type Ref struct {
	Kind      Kind
	Namespace string // empty for objects without one
	Name      string // empty for Pods
}

// claim is what is kept of a claim.
type claim struct {
	limits *string // the annotation
	class  string  // VolumeAttributesClass
	volume string  // PersistentVolume
	size   int64   // in bytes; 0 if it is unknown
}

// volume is what is kept of a PersistentVolume of a storage driver.
type volume struct {
	driver, handle string
	claim          string // NAMESPACE/NAME of the claim that it is bound to
}

// attachment returns the name of the VolumeAttachment of a volume on a node. It is a digest, so the part reads the attachment of each
// volume by its name. A watch of all would send each node the attachments of all nodes, because the API server selects them
// only by their names.
//
// Source: GetAttachmentName in Kubernetes' pkg/volume/csi/csi_attacher.go.
func (v *volume) attachment(node string) string {
	return fmt.Sprintf("csi-%x", sha256.Sum256([]byte(v.handle+v.driver+node)))
}

// kept returns the part of an object that is kept: labels of a namespace, rates of a class or of an attachment, a claim or a volume.
func kept(object any) any {
	switch o := object.(type) {
	case *corev1.Namespace:
		// Bounded here, because all pods of the namespace keep it.
		d := poddoc.Document{Facts: podfacts.Facts{NamespaceLabels: o.Labels}}
		d.Bound()
		return &d
	case *corev1.PersistentVolumeClaim:
		return keptClaim(o)
	case *storagev1.VolumeAttributesClass:
		return rates(o.Parameters, annotation.Parameters())
	case *corev1.PersistentVolume:
		return keptVolume(o)
	case *storagev1.VolumeAttachment:
		return rates(o.Status.AttachmentMetadata, annotation.DriverKeys())
	}
	return nil
}

// keptVolume returns nil for a volume that no storage driver attaches.
func keptVolume(o *corev1.PersistentVolume) any {
	source, bound := o.Spec.CSI, o.Spec.ClaimRef
	if source == nil || bound == nil || !poddoc.IsDriver(source.Driver) {
		return nil
	}
	return &volume{driver: strings.Clone(source.Driver), handle: strings.Clone(source.VolumeHandle), claim: bound.Namespace + "/" + bound.Name}
}

func keptClaim(o *corev1.PersistentVolumeClaim) *claim {
	c := &claim{}
	if text, ok := o.Annotations[poddoc.ClaimKey]; ok {
		text = text[:min(len(text), poddoc.MaxText+1)] // a longer one is omitted
		c.limits = new(strings.Clone(text))
	}
	if name := o.Spec.VolumeAttributesClassName; name != nil && poddoc.IsName(*name) {
		c.class = *name
	}
	if name := o.Spec.VolumeName; poddoc.IsName(name) {
		c.volume = name
	}
	c.size = sizeOf(o)
	return c
}

// sizeOf returns the size of a claim in bytes: what it has, and before it is bound what it asks for.
func sizeOf(o *corev1.PersistentVolumeClaim) int64 {
	size, ok := o.Status.Capacity[corev1.ResourceStorage]
	if !ok {
		size = o.Spec.Resources.Requests[corev1.ResourceStorage]
	}
	return annotation.SizeOf(size)
}

// rates returns the rates among the parameters of a class or the metadata of an attachment, with the keys that they have there.
func rates(parameters map[string]string, keys []string) map[string]string {
	out := map[string]string{}
	for _, key := range keys {
		if text, ok := parameters[key]; ok {
			out[key] = strings.Clone(text[:min(len(text), poddoc.MaxRate+1)])
		}
	}
	return out
}
