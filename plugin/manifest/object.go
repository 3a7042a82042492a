package manifest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/nri-blkio/nri-blkio/policy/quote"
)

// document reads one document of a manifest.
type document struct {
	set     *Set
	file    string
	number  int
	visits  int  // that are left, -1 once too many were reported
	lenient bool // a document without a kind is no error
	seen    map[Finding]bool
	object  Object // the one that is read, maybe an item of a list
}

// Bounds of the findings of one file, and of the path in one of them, in bytes.
const (
	maxFindings = 1000
	maxField    = 512
)

// report adds a finding on the object that is read. A value is read several times, and
// reported once.
func (d *document) report(line int, path string, severity Severity, text string) {
	f := Finding{Position: d.position(line), Object: d.object, Field: cutPath(path), Severity: severity, Text: text}
	switch {
	case d.seen[f] || len(d.seen) > maxFindings:
		return
	case len(d.seen) == maxFindings:
		f = Finding{Position: d.position(line), Severity: Error, Text: fmt.Sprintf("more than %d findings", maxFindings)}
	}
	d.seen[f] = true
	d.set.Findings = append(d.set.Findings, f)
}

// cutPath shortens a path to its end.
func cutPath(path string) string {
	const dots = "..."
	if len(path) <= maxField {
		return path
	}
	return dots + strings.ToValidUTF8(path[len(path)-maxField+len(dots):], "")
}

func (d *document) position(line int) Position { return Position{d.file, d.number, line} }

// maxLists bounds how deep lists of objects may be nested.
const maxLists = 4

// read reads an object. kind is the kind of an item of a typed list, which the item may leave out.
func (d *document) read(n *yaml.Node, kind string, lists int) {
	v := value{doc: d}.at(n, nil)
	d.object = Object{}
	isObject := v.exists() && v.node.Kind == yaml.MappingNode
	if isObject {
		kind = cmp.Or(v.field("kind").text(), kind)
	}
	switch {
	case !isObject && d.lenient:
		d.other(n.Line)
	case !isObject:
		d.report(n.Line, "", Error, "not a Kubernetes object")
	case kind == "":
		d.withoutKind(v)
	case lists < maxLists && isList(v.field("apiVersion").text(), kind):
		d.object.Kind = kind
		for item := range v.field("items").items() {
			if item.exists() {
				d.read(item.node, strings.TrimSuffix(kind, "List"), lists+1)
			}
		}
	default:
		d.object.Kind = kind
		meta := v.field("metadata")
		name := cmp.Or(meta.field("name").text(), meta.field("generateName").text())
		d.object = Object{kind, meta.field("namespace").text(), name}
		d.workload(v)
	}
}

// isList reports whether a kind is a list of objects that may have pods. Other kinds with
// the suffix may be anything.
func isList(apiVersion, kind string) bool {
	item, ok := strings.CutSuffix(kind, "List")
	_, known := templatePath(apiVersion, item)
	return ok && (item == "" || known)
}

func (d *document) other(line int) {
	d.set.Others = append(d.set.Others, Other{d.object, d.position(line)})
}

// withoutKind reads a mapping that is no object, such as the values of a Helm chart.
func (d *document) withoutKind(v value) {
	s := d.newStrays(true)
	s.walk(v.node, nil, false)
	switch {
	case len(s.placed) > 0:
	case d.lenient:
		d.other(v.node.Line)
	default:
		d.report(v.node.Line, "", Error, "no kind: not a Kubernetes object")
	}
}

func (d *document) workload(v value) {
	apiVersion := v.field("apiVersion").text()
	path, known := templatePath(apiVersion, d.object.Kind)
	s := d.newStrays(!known)
	var templates []value
	if known {
		templates = []value{v.field(path...)}
	} else {
		templates = v.templates(0)
	}
	for _, t := range templates {
		if !t.exists() {
			d.report(v.node.Line, t.path.String(), Error, "no pod template")
			continue
		}
		if t.node.Kind != yaml.MappingNode {
			t.fail("not a pod template")
			continue
		}
		s.templates[t.node] = true
		d.pod(v, t, s)
	}
	found := len(d.set.Pods) + len(d.set.Claims) + len(d.set.Classes)
	switch {
	case len(templates) > 0:
		s.walk(v.node, nil, false)
		return
	case d.isNamespace(v):
		d.namespace(v)
	case d.isPersistentVolumeClaim(v):
		d.claim(v, s)
	case d.isVolumeClass(v):
		d.volumeClass(v)
	default:
		if !isKubernetes(apiVersion) {
			s.walk(v.node, nil, false)
		}
	}
	s.withoutPod(v)
	if len(d.set.Pods)+len(d.set.Claims)+len(d.set.Classes) == found && !d.isNamespace(v) {
		d.other(v.node.Line)
	}
}

// isKubernetes reports whether a group is Kubernetes' own. The domain k8s.io has groups of other projects too.
func isKubernetes(apiVersion string) bool {
	group, _, found := strings.Cut(apiVersion, "/")
	name, hasDomain := strings.CutSuffix(group, ".k8s.io")
	return !found || !strings.Contains(group, ".") || hasDomain && slices.Contains([]string{
		"admissionregistration", "apiextensions", "apiregistration", "certificates", "coordination", "discovery", "events",
		"flowcontrol.apiserver", "networking", "node", "rbac.authorization", "resource", "scheduling", "storage",
	}, name)
}

// templatePath returns where the pod template of a workload is, and false for kinds that
// are not Kubernetes' own. The path of a pod is empty.
func templatePath(apiVersion, kind string) (path []string, known bool) {
	group, _, found := strings.Cut(apiVersion, "/")
	if found && group != "apps" && group != "batch" && group != "extensions" {
		return nil, false // such as the kind Job of batch.volcano.sh
	}
	switch kind {
	case "Pod":
		return nil, true
	case "PodTemplate":
		return []string{"template"}, true
	case "Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "ReplicationController", "Job":
		return []string{"spec", "template"}, true
	case "CronJob":
		return []string{"spec", "jobTemplate", "spec", "template"}, true
	}
	return nil, false
}

// maxSearch bounds how deep pod templates are searched for.
const maxSearch = 32

// templates returns the pod templates in an object of an unknown kind. These are all parts that have a spec
// with a list of containers. It follows no aliases.
func (v value) templates(depth int) []value {
	var out []value
	switch {
	case depth > maxSearch || v.node == nil || !v.doc.visit(len(v.node.Content)):
	case v.node.Kind == yaml.SequenceNode:
		for i, item := range v.node.Content {
			if item.Kind != yaml.AliasNode {
				out = append(out, v.at(item, index(v.path, i)).templates(depth+1)...)
			}
		}
	case v.node.Kind == yaml.MappingNode:
		// An object that itself has spec.containers, such as a Prometheus, names containers that its controller changes.
		if list := lookup(lookup(v.node, "spec"), "containers"); v.path != nil && list != nil && list.Kind == yaml.SequenceNode {
			return []value{v}
		}
		for i := 0; i+1 < len(v.node.Content); i += 2 {
			if key, item := v.node.Content[i], v.node.Content[i+1]; item.Kind != yaml.AliasNode {
				out = append(out, v.at(item, child(v.path, key.Value)).templates(depth+1)...)
			}
		}
	}
	return out
}

func lookup(n *yaml.Node, name string) *yaml.Node {
	if n == nil || n.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == name {
			return n.Content[i+1]
		}
	}
	return nil
}

// NameLabel is a label with its name that the API server gives each namespace.
const NameLabel = "kubernetes.io/metadata.name"

func (d *document) isNamespace(v value) bool {
	return d.object.Kind == "Namespace" && !strings.Contains(v.field("apiVersion").text(), "/")
}

func (d *document) namespace(v value) {
	labels := v.labels()
	if labels == nil {
		labels = map[string]string{}
	}
	labels[NameLabel] = d.object.Name
	d.set.addNamespace(d.object.Name, labels)
}

func (v value) labels() (out map[string]string) {
	for _, label := range v.field("metadata", "labels").pairs() {
		if out == nil {
			out = map[string]string{}
		}
		out[label.key.Value] = v.at(label.value, child(v.path, "metadata").Child("labels").Key(quote.Clip(label.key.Value, maxKey))).text()
	}
	return out
}

func (s *Set) addNamespace(name string, labels map[string]string) {
	if s.Namespaces == nil {
		s.Namespaces = map[string]map[string]string{}
	}
	s.Namespaces[name] = labels
}
