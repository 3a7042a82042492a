package manifest

import (
	"cmp"
	"strings"
)

// Claim is a PersistentVolumeClaim with limits of its own.
type Claim struct {
	Namespace, Name string
	Limits          string // the text of its annotation
}

// ClaimKey returns the key of the annotation that limits a claim.
func (k Keys) ClaimKey() string { return "limits." + k.Domain }

// claim reads a PersistentVolumeClaim, and notes that its annotation is in the right place. It returns false if the claim has
// no limits.
func (d *document) claim(v value, s *strays) bool {
	limits := d.claimLimits(v, s)
	if limits == nil {
		return false
	}
	d.set.Claims = append(d.set.Claims, Claim{cmp.Or(d.object.Namespace, "default"), d.object.Name, *limits})
	return true
}

// claimLimits returns the limits of a claim or of a template of claims, nil for none.
func (d *document) claimLimits(v value, s *strays) *string {
	annotations := lookup(lookup(v.node, "metadata"), "annotations")
	text := lookup(annotations, d.keys.ClaimKey())
	if text == nil || !isText(text) {
		return nil
	}
	s.claims[annotations] = true
	return new(strings.Clone(text.Value))
}

// isPersistentVolumeClaim reports whether an object is a claim.
func (d *document) isPersistentVolumeClaim(v value) bool {
	return d.object.Kind == "PersistentVolumeClaim" && !strings.Contains(v.field("apiVersion").text(), "/")
}

// Link gives the volumes of all pods the limits of their claims, and the pods the labels of their namespaces. These objects
// and the pod can be in different manifests.
func (s *Set) Link() {
	type name struct{ namespace, name string }
	limits := map[name]*string{}
	for i := range s.Claims {
		c := &s.Claims[i]
		limits[name{c.Namespace, c.Name}] = &c.Limits
	}
	for i := range s.Pods {
		p := &s.Pods[i]
		p.NamespaceLabels = s.Namespaces[p.Namespace]
		for k := range p.Volumes {
			if v := &p.Volumes[k]; v.Claim != "" {
				v.Limits = cmp.Or(limits[name{p.Namespace, v.Claim}], v.Limits)
			}
		}
	}
}
