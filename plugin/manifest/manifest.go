// Package manifest reads the pods of Kubernetes manifests: pods themselves, and the pod templates of workloads.
// It reports annotations in wrong places and with wrong names, each with file, document and line.
//
// The package parses text. It knows only those fields of the API that decide where a container's data is
// stored. It ignores all others, because the API server may be newer than this program. It does not replace the
// API server's validation.
package manifest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/nri-blkio/nri-blkio/policy"
)

// Set is the content of one or more manifests.
type Set struct {
	Pods    []Pod
	Claims  []Claim       // claims and templates of claims
	Classes []VolumeClass // VolumeAttributesClasses
	Others  []Other       // objects without a pod, in order, apart from those above and namespaces
	// Namespaces has the labels of the namespaces, by name.
	Namespaces map[string]map[string]string
	Findings   []Finding
}

// Add appends the content of another set.
func (s *Set) Add(o Set) {
	s.Pods = append(s.Pods, o.Pods...)
	s.Claims = append(s.Claims, o.Claims...)
	s.Classes = append(s.Classes, o.Classes...)
	s.Others = append(s.Others, o.Others...)
	for name, labels := range o.Namespaces {
		s.addNamespace(name, labels)
	}
	s.Findings = append(s.Findings, o.Findings...)
}

// IsEmpty reports whether the set has nothing that can have limits.
func (s *Set) IsEmpty() bool { return len(s.Pods)+len(s.Claims)+len(s.Classes) == 0 }

// HasErrors reports whether the severity of a finding is Error.
func HasErrors(findings []Finding) bool {
	return slices.ContainsFunc(findings, func(f Finding) bool { return f.Severity == Error })
}

// OtherKinds returns the kinds of Others, sorted and without duplicates. A document that is not an
// object, such as a kustomization, has no kind.
func (s *Set) OtherKinds() []string {
	var kinds []string
	for i := range s.Others {
		if k := s.Others[i].Kind; k != "" {
			kinds = append(kinds, k)
		}
	}
	slices.Sort(kinds)
	return slices.Compact(kinds)
}

// Position is a place in a manifest.
type Position struct {
	File     string `json:"file"`
	Document int    `json:"document,omitempty"` // 1-based; empty documents do not count
	Line     int    `json:"line,omitempty"`     // 1-based, in the file; 0 if it is unknown
}

// String returns "FILE:LINE", a form that editors and terminals can open.
func (p Position) String() string {
	if p.Line == 0 {
		return p.File
	}
	return fmt.Sprintf("%s:%d", p.File, p.Line)
}

// Object names a Kubernetes object.
type Object struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"` // metadata.name, or metadata.generateName
}

// String returns "KIND NAMESPACE/NAME".
func (o Object) String() string {
	name := o.Name
	if o.Namespace != "" {
		name = o.Namespace + "/" + o.Name
	}
	return strings.TrimSpace(o.Kind + " " + name)
}

// Other is an object without a pod.
type Other struct {
	Object
	Position
}

// Severity is the severity of a finding.
type Severity string

// The severities.
const (
	// Error is the severity of an object that the API server rejects, and of an annotation
	// without effect.
	Error Severity = "error"
	// Warning is the severity of an annotation whose effect is unknown.
	Warning Severity = "warning"
)

// Finding is a problem in a manifest. Its text quotes the manifest.
type Finding struct {
	Position
	Object   Object   `json:"object"`
	Field    string   `json:"field,omitempty"` // path in the object, as in spec.containers[0].name
	Severity Severity `json:"severity"`
	Text     string   `json:"text"`
}

// String returns one line: "FILE:LINE: OBJECT: FIELD: TEXT".
func (f *Finding) String() string {
	parts := []string{f.Position.String(), f.Object.String(), f.Field, f.Text}
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), ": ")
}

// Pod is a pod, or the pod template of a workload.
type Pod struct {
	Object
	Position
	// Template is the path of the pod template in the object. It is "" for a Pod. If IsPartial, the controller of a kind that is not
	// Kubernetes' own adds an unknown part of the pod. Without containers the manifest has its annotations only, and Template is their
	// path.
	Template  string
	IsPartial bool
	// Annotations are those of the pod. Lines has the line of each, by key.
	Annotations map[string]string
	Lines       map[string]int

	Labels map[string]string
	QOS    policy.QOS
	// NamespaceLabels are the labels of the pod's namespace. They are nil while they are unknown.
	NamespaceLabels map[string]string

	RuntimeClass string
	MemoryLimit  uint64 // of the whole pod in bytes, 0 for none
	Volumes      []Volume
	// Containers are the init containers, then the containers, then the ephemeral
	// containers.
	Containers []Container
}

// Role is the role of a container in its pod.
type Role string

// The roles.
const (
	Init      Role = "init"      // ends before the main containers start
	Sidecar   Role = "sidecar"   // an init container with restartPolicy Always
	Main      Role = "main"      // one of spec.containers
	Ephemeral Role = "ephemeral" // added to a running pod
)

// NoName begins the names that stand for those that the manifest leaves out. No container has such a name.
const NoName = "(no name"

// Container is a container of a pod.
type Container struct {
	Name        string
	Role        Role
	Privileged  bool
	MemoryLimit uint64 // in bytes, 0 for none
	Mounts      []Mount
	Devices     []Device
}

// Mount is a volume at a path of a container.
type Mount struct {
	Volume   string
	Path     string // as it is written in the manifest
	SubPath  string // subPath or subPathExpr; an expression is not expanded
	ReadOnly bool
}

// Device is a raw block volume at a path of a container.
type Device struct {
	Volume string
	Path   string
}

// Volume is a volume of a pod.
type Volume struct {
	Name string
	// Source is the name of the API's field: "emptyDir", "hostPath",
	// "persistentVolumeClaim" and so on. A volume without a source is an emptyDir.
	Source   string
	ReadOnly bool   // the volume itself, not one of its mounts
	Path     string // of a hostPath
	Medium   string // of an emptyDir: "", "Memory", "HugePages" and "HugePages-SIZE"
	Claim    string // name of a persistentVolumeClaim, also of a generated one; "" if it is unknown
	Driver   string // of a csi volume
	Claims   string // of a claim template of a StatefulSet: what the names of its claims have before the ordinal
	// Limits is the annotation of the claim; nil without one, and if no manifest has the claim.
	Limits *string
	// Request is that of the claim; zero if no manifest has it.
	Request Request
}

// Sources that the API has, and that are no more than a name here, have no constant.
const (
	EmptyDir              = "emptyDir"
	HostPath              = "hostPath"
	PersistentVolumeClaim = "persistentVolumeClaim"
	CSI                   = "csi"
	// Undeclared is the source of a volume that the controller of a partial pod adds.
	Undeclared = "undeclared"
)

// compare orders positions within one file.
func (p Position) compare(o Position) int {
	return cmp.Or(cmp.Compare(p.Document, o.Document), cmp.Compare(p.Line, o.Line))
}
