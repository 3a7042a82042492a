package manifest

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// Claim is a PersistentVolumeClaim, or a template of claims in an object.
type Claim struct {
	Object
	Position        // of its limits, if it has any
	Template string // the path of the limits in an object of another kind; "" for a claim
	Limits   *string
	Request  Request
}

// Request is what a claim or a template of claims asks for beside its limits.
type Request struct {
	Size       int64             // in bytes, zero if it is not there
	Class      string            // the name of its VolumeAttributesClass, or ""
	Parameters map[string]string // of the class, of the volume of a pod; nil if no manifest has it
}

// VolumeClass is a VolumeAttributesClass.
type VolumeClass struct {
	Object
	Position
	Parameters map[string]string
	Lines      map[string]int // of the parameters
}

func (d *document) claim(v value, s *strays) {
	c := Claim{Object: d.object, Position: d.position(v.node.Line)}
	c.Namespace = cmp.Or(c.Namespace, "default")
	c.Limits, c.Line = d.claimLimits(v, s)
	c.Request = requestOf(v)
	c.Line = cmp.Or(c.Line, v.node.Line)
	d.set.Claims = append(d.set.Claims, c)
}

// requestOf reads a claim or a template of claims. The size is the one that it has, or asks for.
func requestOf(v value) Request {
	size := func(names ...string) int64 { return annotation.SizeOf(v.field(names...).quantity()) }
	return Request{
		Class: v.field("spec", "volumeAttributesClassName").text(),
		Size:  cmp.Or(size("status", "capacity", "storage"), size("spec", "resources", "requests", "storage")),
	}
}

// claimTemplate reads a template of claims, and gives its limits to the volume.
func (d *document) claimTemplate(vol *Volume, v value, s *strays) {
	limits, line := d.claimLimits(v, s)
	vol.Limits, vol.Request = limits, requestOf(v)
	if limits != nil {
		d.addClaimTemplate(v.path.Child("metadata", "annotations").String(), line, *limits, vol.Request)
	}
}

func (d *document) addClaimTemplate(path string, line int, limits string, of Request) {
	d.set.Claims = append(d.set.Claims, Claim{Object: d.object, Position: d.position(line), Template: cutPath(path), Limits: &limits, Request: of})
}

// claimLimits returns the limits of a claim or of a template of claims, nil for none, and their line.
func (d *document) claimLimits(v value, s *strays) (limits *string, line int) {
	annotations := v.field("metadata", "annotations")
	for _, p := range annotations.pairs() {
		if text := v.at(p.value, nil); p.key.Value == claimKey && text.exists() && isText(text.node) {
			limits, line = new(strings.Clone(text.node.Value)), p.key.Line
		}
	}
	if limits != nil {
		s.claims[annotations.node] = true
	}
	return limits, line
}

func (d *document) volumeClass(v value) {
	c := VolumeClass{Object: d.object, Position: d.position(v.node.Line), Parameters: map[string]string{}, Lines: map[string]int{}}
	for _, p := range v.field("parameters").pairs() {
		c.Parameters[p.key.Value] = v.at(p.value, child(v.path, "parameters")).text()
		c.Lines[p.key.Value] = p.key.Line
	}
	d.set.Classes = append(d.set.Classes, c)
}

func (d *document) isPersistentVolumeClaim(v value) bool {
	return d.object.Kind == "PersistentVolumeClaim" && !strings.Contains(v.field("apiVersion").text(), "/")
}

func (d *document) isVolumeClass(v value) bool {
	return d.object.Kind == "VolumeAttributesClass" && strings.HasPrefix(v.field("apiVersion").text(), "storage.k8s.io/")
}

// Link gives the volumes of all pods the limits of their claims and of the classes of these claims. It gives the pods the labels of their
// namespaces. These objects and the pod can be in different manifests.
func (s *Set) Link() {
	type name struct{ namespace, name string }
	claims := map[name]*Claim{}
	for i := range s.Claims {
		if c := &s.Claims[i]; c.Template == "" {
			claims[name{c.Namespace, c.Name}] = c
		}
	}
	classes := map[string]map[string]string{}
	for i := range s.Classes {
		classes[s.Classes[i].Name] = s.Classes[i].Parameters
	}
	for i := range s.Pods {
		s.Pods = append(s.Pods, s.replicas(&s.Pods[i])...)
	}
	for i := range s.Pods {
		p := &s.Pods[i]
		p.NamespaceLabels = s.Namespaces[p.Namespace]
		for k := range p.Volumes {
			v := &p.Volumes[k]
			if c := claims[name{p.Namespace, v.Claim}]; c != nil && v.Claim != "" {
				v.Limits, v.Request = cmp.Or(c.Limits, v.Limits), c.Request
			}
			v.Request.Parameters = classes[v.Request.Class]
		}
	}
}

// replicas returns the pods of a StatefulSet beside the first one of whose claims the manifests have one.
func (s *Set) replicas(p *Pod) (out []Pod) {
	ordinals := map[uint64]bool{}
	for _, v := range p.Volumes {
		for i := range s.Claims {
			c := &s.Claims[i]
			text, isOf := strings.CutPrefix(c.Name, v.Claims)
			ordinal, err := strconv.ParseUint(text, 10, 31)
			if isOf && v.Claims != "" && err == nil && c.Template == "" && c.Namespace == p.Namespace && c.Name != v.Claim {
				ordinals[ordinal] = true
			}
		}
	}
	for _, ordinal := range slices.Sorted(maps.Keys(ordinals)) {
		of := *p
		of.Object = Object{Kind: "Pod", Namespace: p.Namespace, Name: fmt.Sprintf("%s-%d", p.Name, ordinal)}
		of.Volumes = slices.Clone(p.Volumes)
		for i := range of.Volumes {
			if v := &of.Volumes[i]; v.Claims != "" {
				v.Claim = fmt.Sprint(v.Claims, ordinal)
			}
		}
		out = append(out, of)
	}
	return out
}
