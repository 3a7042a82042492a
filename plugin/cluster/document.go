package cluster

import (
	"maps"
	"slices"

	"github.com/nri-blkio/nri-blkio/plugin/poddoc"
)

// lookup returns what is kept of an object, nil if there is none. known is false if the API server
// has not answered yet.
type lookup func(Ref) (value any, known bool)

// refs returns the objects that the document of a pod needs, as far as they are known: the classes of
// a claim are known with the claim.
func (p *pod) refs(get lookup) []Ref {
	out := []Ref{{Namespaces, "", p.doc.Namespace}}
	add := func(ref Ref) {
		if ref.Name != "" && !slices.Contains(out, ref) {
			out = append(out, ref)
		}
	}
	for i := range p.doc.Volumes {
		ref := p.claim(i)
		add(ref)
		if c := claimOf(get(ref)); c != nil {
			add(Ref{AttributesClasses, "", c.class})
			add(Ref{StorageClasses, "", c.storageClass})
		}
	}
	return out
}

// claim names the claim of a volume.
func (p *pod) claim(i int) Ref { return Ref{Claims, p.doc.Namespace, p.doc.Volumes[i].Claim} }

// claimOf returns nil for a claim that does not exist or is not known.
func claimOf(value any, _ bool) *claim {
	c, _ := value.(*claim)
	return c
}

// document returns the document of a pod. Its objects are known.
func (p *pod) document(get lookup) *poddoc.Document {
	d := p.doc
	d.Volumes, d.Omitted = slices.Clone(d.Volumes), maps.Clone(d.Omitted)
	// A namespace that does not exist is being deleted with its pods.
	if value, _ := get(Ref{Namespaces, "", d.Namespace}); value != nil {
		ns := value.(*poddoc.Document)
		d.NamespaceLabels = ns.NamespaceLabels
		if len(ns.Omitted) > 0 {
			d.Omitted = map[string]string{}
			maps.Copy(d.Omitted, p.doc.Omitted)
			maps.Copy(d.Omitted, ns.Omitted)
		}
	}
	for i := range d.Volumes {
		v := &d.Volumes[i]
		c := claimOf(get(p.claim(i)))
		if c == nil {
			v.Absent = true
			continue
		}
		v.PersistentVolume, v.Limits = c.volume, c.limits
		v.Class = class(get, Ref{AttributesClasses, "", c.class})
		// Most storage classes have no rates.
		if storage := class(get, Ref{StorageClasses, "", c.storageClass}); storage != nil && len(storage.Rates) > 0 {
			v.StorageClass = storage
		}
	}
	d.Bound()
	return &d
}

// class returns nil if the claim names none.
func class(get lookup, ref Ref) *poddoc.Class {
	if ref.Name == "" {
		return nil
	}
	value, _ := get(ref)
	rates, exists := value.(map[string]string)
	return &poddoc.Class{Name: ref.Name, Absent: !exists, Rates: rates}
}

// withoutVolumes returns the pod with its volumes omitted for a cause.
func (p *pod) withoutVolumes(cause string) *pod {
	out := *p
	out.doc.Volumes, out.doc.Omitted = nil, maps.Clone(p.doc.Omitted)
	if out.doc.Omitted == nil {
		out.doc.Omitted = map[string]string{}
	}
	out.doc.Omitted[poddoc.PartVolumes] = cause
	return &out
}
