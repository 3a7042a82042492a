package cluster

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/nri-blkio/nri-blkio/plugin/poddoc"
)

// Kind is a kind of objects of the API server.
type Kind string

// The kinds that the part reads.
const (
	Pods              Kind = "pods" // all of the node
	Namespaces        Kind = "namespaces"
	Claims            Kind = "persistentvolumeclaims"
	AttributesClasses Kind = "volumeattributesclasses"
	StorageClasses    Kind = "storageclasses"
)

// Ref names what a watch is of: one object, or with [Pods] all pods of the node.
type Ref struct {
	Kind      Kind
	Namespace string // empty for objects without one
	Name      string // empty for Pods
}

// linstor is the provisioner whose storage classes can have rates.
const linstor = "linstor.csi.linbit.com"

// provisioner are the annotations in which Kubernetes notes the provisioner of a claim. Only the
// second one exists in older versions.
var provisioner = [...]string{"volume.kubernetes.io/storage-provisioner", "volume.beta.kubernetes.io/storage-provisioner"}

// claim is what is kept of a claim.
type claim struct {
	volume       string  // the PersistentVolume
	limits       *string // the annotation
	class        string  // VolumeAttributesClass
	storageClass string  // only of LINSTOR
}

// kept returns the part of an object that is kept: labels of a namespace, rates of a class, or a claim.
func kept(object any) any {
	switch o := object.(type) {
	case *corev1.Namespace:
		// Bounded here, because all pods of the namespace keep it.
		d := poddoc.Document{NamespaceLabels: o.Labels}
		d.Bound()
		return &d
	case *corev1.PersistentVolumeClaim:
		return keptClaim(o)
	case *storagev1.VolumeAttributesClass:
		return rates(o.Parameters, "", poddoc.OwnPrefix, poddoc.LinstorPrefix)
	case *storagev1.StorageClass:
		// A plain name may mean something else to a provisioner.
		return rates(o.Parameters, poddoc.LinstorPrefix)
	}
	return nil
}

func keptClaim(o *corev1.PersistentVolumeClaim) *claim {
	c := &claim{volume: o.Spec.VolumeName}
	if text, ok := o.Annotations[poddoc.ClaimKey]; ok {
		text = text[:min(len(text), poddoc.MaxText+1)] // a longer one is omitted
		c.limits = new(strings.Clone(text))
	}
	if name := o.Spec.VolumeAttributesClassName; name != nil && poddoc.IsName(*name) {
		c.class = *name
	}
	name := o.Spec.StorageClassName
	for _, key := range provisioner {
		if o.Annotations[key] == linstor && name != nil && poddoc.IsName(*name) {
			c.storageClass = *name
		}
	}
	return c
}

// rates returns the rates among the parameters of a class, with the keys that they have there.
func rates(parameters map[string]string, prefixes ...string) map[string]string {
	out := map[string]string{}
	for _, prefix := range prefixes {
		for _, rate := range poddoc.Rates() {
			if text, ok := parameters[prefix+rate]; ok {
				out[prefix+rate] = strings.Clone(text[:min(len(text), poddoc.MaxRate+1)])
			}
		}
	}
	return out
}
