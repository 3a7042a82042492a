package cluster

import (
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
}

// kept returns the part of an object that is kept: labels of a namespace, rates of a class, or a claim.
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
		return rates(o.Parameters)
	}
	return nil
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
	return c
}

// rates returns the rates among the parameters of a class, with the keys that they have there.
func rates(parameters map[string]string) map[string]string {
	out := map[string]string{}
	for _, key := range annotation.Parameters() {
		if text, ok := parameters[key]; ok {
			out[key] = strings.Clone(text[:min(len(text), poddoc.MaxRate+1)])
		}
	}
	return out
}
