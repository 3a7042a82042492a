package cluster

import (
	"maps"
	"slices"

	"github.com/nri-blkio/nri-blkio/plugin/poddoc"
	"github.com/nri-blkio/nri-blkio/plugin/podfacts"
	"github.com/nri-blkio/nri-blkio/policy"
)

// lookup returns what is kept of an object, nil if there is none. known is false if the API server
// has not answered yet.
type lookup func(Ref) (value any, known bool)

// refs returns the objects that the document of a pod needs, as far as they are known: the class and the volume of a claim are known
// with the claim, and the attachment with the volume. The node is the one whose attachments are read, "" for none.
func (p *pod) refs(get lookup, node string) []Ref {
	out := []Ref{p.namespace()}
	add := func(ref Ref) {
		if ref.Name != "" && !slices.Contains(out, ref) {
			out = append(out, ref)
		}
	}
	for i := range p.doc.Volumes {
		ref := p.claim(i) // without a name if the volume is no claim
		add(ref)
		if c := claimOf(get(ref)); c != nil {
			add(Ref{AttributesClasses, "", c.class})
			if node != "" {
				add(Ref{Volumes, "", c.volume})
				add(p.attachment(i, c, get, node).ref)
			}
		}
	}
	return out
}

// namespace names the namespace of the pod.
func (p *pod) namespace() Ref { return Ref{Namespaces, "", p.doc.Namespace} }

// claim names the claim of a volume.
func (p *pod) claim(i int) Ref { return Ref{Claims, p.doc.Namespace, p.doc.Volumes[i].Claim} }

// attached is the attachment of a claim to the node. The zero value is none.
type attached struct {
	ref    Ref
	driver string
}

// attachment returns the attachment of the claim of a volume. Only a volume that is bound to the claim counts: a tenant can name any
// volume in a claim.
func (p *pod) attachment(i int, c *claim, get lookup, node string) attached {
	if node == "" || c.volume == "" {
		return attached{}
	}
	value, _ := get(Ref{Volumes, "", c.volume})
	v, _ := value.(*volume)
	if v == nil || v.claim != p.doc.Namespace+"/"+p.doc.Volumes[i].Claim {
		return attached{}
	}
	return attached{Ref{Attachments, "", v.attachment(node)}, v.driver}
}

// limits returns the limits that the storage driver wrote, nil for none.
func (a attached) limits(get lookup) *policy.ClaimAttachment {
	if a.driver == "" {
		return nil
	}
	value, _ := get(a.ref)
	rates, _ := value.(map[string]string)
	if len(rates) == 0 {
		return nil
	}
	return &policy.ClaimAttachment{Driver: a.driver, Rates: rates}
}

// claimOf returns nil for a claim that does not exist or is not known.
func claimOf(value any, _ bool) *claim {
	c, _ := value.(*claim)
	return c
}

// document returns the document of a pod. Its objects are known.
func (p *pod) document(get lookup, node string) *poddoc.Document {
	d := p.doc
	d.Volumes, d.Omitted = slices.Clone(d.Volumes), maps.Clone(d.Omitted)
	p.setNamespace(&d, get)
	for i := range d.Volumes {
		v := &d.Volumes[i]
		v.Places = slices.Clone(v.Places) // Bound writes them
		c := claimOf(get(p.claim(i)))
		if c == nil {
			continue
		}
		v.Limits, v.Size, v.Class = c.limits, c.size, class(get, Ref{AttributesClasses, "", c.class})
		v.Attachment = p.attachment(i, c, get, node).limits(get)
	}
	d.Bound()
	return &d
}

// setNamespace gives a document the labels of the namespace.
func (p *pod) setNamespace(d *poddoc.Document, get lookup) {
	d.NamespaceLabels = nil
	delete(d.Omitted, podfacts.PartNamespaceLabels)
	value, _ := get(p.namespace())
	ns, exists := value.(*poddoc.Document)
	if !exists { // it is being deleted with its pods
		return
	}
	d.NamespaceLabels = ns.NamespaceLabels
	for part, cause := range ns.Omitted {
		d.Omit(part, cause)
	}
}

// class returns nil if the claim names none.
func class(get lookup, ref Ref) *policy.ClaimClass {
	if ref.Name == "" {
		return nil
	}
	value, _ := get(ref)
	rates, _ := value.(map[string]string)
	return &policy.ClaimClass{Name: ref.Name, Rates: rates}
}

// withoutVolumes returns the pod with its volumes omitted for a cause.
func (p *pod) withoutVolumes(cause string) *pod {
	out := *p
	out.doc.Omit(podfacts.PartVolumes, cause)
	return &out
}
