package manifest

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/nri-blkio/nri-blkio/policy/annotation"
	"github.com/nri-blkio/nri-blkio/policy/quote"
	"github.com/nri-blkio/nri-blkio/policy/spelling"
)

// strays finds annotations without effect in an object: those in the wrong place, and those with a key that
// resembles one of this domain.
type strays struct {
	*document
	isForeign bool                // the object's kind is not Kubernetes' own
	templates map[*yaml.Node]bool // the pods
	placed    map[*yaml.Node]bool // mappings that are the annotations of a pod
	claims    map[*yaml.Node]bool // mappings that are the annotations of a claim with limits
	given     map[string]bool     // keys of the pods' annotations
	right     string              // the path of a pod's annotations
	// parameters are the keys of rates in a VolumeAttributesClass.
	parameters []string
}

func (d *document) newStrays(isForeign bool) *strays {
	nodes := func() map[*yaml.Node]bool { return map[*yaml.Node]bool{} }
	return &strays{
		document: d, isForeign: isForeign, templates: nodes(), placed: nodes(), claims: nodes(), given: map[string]bool{},
		parameters: annotation.Parameters(),
	}
}

func (s *strays) severity() Severity {
	if s.isForeign {
		return Warning
	}
	return Error
}

// annotations reads the annotations of a pod, with the line of each.
func (s *strays) annotations(v value) (values map[string]string, lines map[string]int) {
	values, lines = map[string]string{}, map[string]int{}
	if s.right == "" {
		s.right = v.path.String()
	}
	if !v.exists() {
		return values, lines
	}
	s.place(v.node, 0)
	s.duplicates(v)
	for _, p := range v.pairs() {
		key, val := p.key.Value, v.at(p.value, v.path.Key(quote.Clip(p.key.Value, maxKey)))
		switch {
		case !val.exists():
			values[key] = "" // as the API server reads it
		case s.isForeign && s.hasPlaceholder(val, key):
			continue
		case isText(val.node):
			values[key] = val.node.Value
		default:
			s.report(val.node.Line, v.path.String(), Error, "annotation "+quoted(key)+" is not a string"+inQuotes(val.node))
			continue
		}
		lines[key], s.given[key] = p.key.Line, true
	}
	return values, lines
}

// isPattern reports whether a key is no name, such as +(KEY) of a policy engine.
func isPattern(key string) bool { return strings.ContainsAny(key, "(){}$") }

// hasPlaceholder reports a value of this domain that another program fills in.
func (s *strays) hasPlaceholder(v value, key string) bool {
	if !v.exists() || !isText(v.node) || !annotation.IsKey(key) || !strings.Contains(v.node.Value, "{{") && !strings.Contains(v.node.Value, "${") {
		return false
	}
	s.report(v.node.Line, v.path.String(), Warning, "the value has a placeholder, so it is not checked")
	return true
}

// duplicates reports the keys of this domain that a mapping has twice. The last one counts.
func (s *strays) duplicates(v value) {
	if v.node.Kind != yaml.MappingNode {
		return
	}
	first := map[string]int{}
	for i := 0; i+1 < len(v.node.Content); i += 2 {
		key := v.node.Content[i]
		switch line, known := first[key.Value]; {
		case !annotation.IsKey(key.Value):
		case known:
			s.report(key.Line, v.path.String(), Error, "annotation "+quoted(key.Value)+" is written twice, first in line "+strconv.Itoa(line))
		default:
			first[key.Value] = key.Line
		}
	}
}

// place notes the mapping of a pod's annotations, and those that are merged into it.
func (s *strays) place(n *yaml.Node, depth int) {
	if depth > maxMerges || n.Kind != yaml.MappingNode || s.placed[n] {
		return
	}
	s.placed[n] = true
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].ShortTag() == "!!merge" {
			for _, from := range mergedNodes(n.Content[i+1]) {
				s.place(from, depth+1)
			}
		}
	}
}

// walk examines each key below a node, which may be in a pod. It does not follow aliases: their anchors are in
// the document as well.
func (s *strays) walk(n *yaml.Node, path []string, inPod bool) {
	if !s.visit(len(n.Content)) {
		return
	}
	switch n.Kind {
	case yaml.SequenceNode:
		for i, item := range n.Content {
			s.walk(item, append(path, "["+strconv.Itoa(i)+"]"), inPod)
		}
	case yaml.MappingNode:
		inPod = inPod || s.templates[n]
		if s.isForeign && !inPod && !s.isMetadata(path) && !s.placed[n] {
			s.read(n, path)
		}
		for i := 0; i+1 < len(n.Content); i += 2 {
			key := n.Content[i]
			if isServers(path, key.Value) {
				continue
			}
			s.examine(n, key, path)
			s.walk(n.Content[i+1], append(path, quote.Clip(key.Value, maxKey)), inPod)
		}
	}
}

// isMetadata reports whether a path is that of the object's own annotations, or of labels.
func (s *strays) isMetadata(path []string) bool {
	if len(path) == 0 {
		return false
	}
	last := path[len(path)-1]
	return len(path) == 2 && path[0] == "metadata" || strings.HasSuffix(strings.ToLower(last), "labels") || strings.HasSuffix(strings.ToLower(last), "selector")
}

// read reads the keys of this domain in a mapping of an object that is not Kubernetes' own. Its controller may give them to pods, or
// to claims, whatever the name of the field.
func (s *strays) read(n *yaml.Node, path []string) {
	v := value{doc: s.document, node: n, path: field.NewPath(cutPath(joined(path)))}
	p := Pod{Object: s.object, Position: s.position(n.Line), Template: v.path.String(), IsPartial: true, Annotations: map[string]string{}, Lines: map[string]int{}}
	p.Namespace = cmp.Or(p.Namespace, "default")
	s.duplicates(v)
	isPlaceholder := false
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, val := n.Content[i].Value, v.at(n.Content[i+1], v.path.Key(quote.Clip(n.Content[i].Value, maxKey)))
		name, isNear := meantKey(key)
		if !isNear {
			name = key
		}
		switch {
		case !isNear && !annotation.IsKey(key), slices.Contains(s.parameters, key), isPattern(key), val.exists() && val.node.Kind != yaml.ScalarNode:
			continue // such as a schema
		case val.exists() && !isText(val.node):
			s.report(val.node.Line, v.path.String(), Error, "annotation "+quoted(key)+" is not a string"+inQuotes(val.node))
		case s.hasPlaceholder(val, name):
			isPlaceholder = true
		case name == claimKey && (isOfClaims(path) || !annotation.HaveTargets(val.text())):
			s.addClaimTemplate(v.path.String(), n.Content[i].Line, val.text(), Request{})
			s.claims[n] = true
		default:
			p.Annotations[name], p.Lines[name] = val.text(), n.Content[i].Line
		}
		s.placed[n] = true
	}
	if isPlaceholder || len(p.Annotations) > 0 {
		s.set.Pods = append(s.set.Pods, p)
	}
}

// isOfClaims reports whether the name of a field says that it is about claims. The annotation of limits has one key on claims and on pods.
func isOfClaims(path []string) bool {
	return slices.ContainsFunc(path, func(name string) bool {
		name = strings.ToLower(name)
		return strings.Contains(name, "claim") || strings.Contains(name, "pvc")
	})
}

// isServers reports whether a field is the API server's, which names the fields of others.
func isServers(path []string, key string) bool {
	return len(path) == 0 && key == "status" || len(path) == 1 && path[0] == "metadata" && key == "managedFields"
}

func (s *strays) examine(n, key *yaml.Node, path []string) {
	if s.claims[n] && key.Value == claimKey {
		return
	}
	if s.isForeign && (isPattern(key.Value) || slices.Contains(s.parameters, key.Value)) {
		return
	}
	if s.isForeign && s.right == "" && len(path) == 2 && path[0] == "metadata" {
		return // reported by withoutPod
	}
	if annotation.IsKey(key.Value) {
		if !s.placed[n] && !s.given[key.Value] { // in both places it has its effect
			text := "annotation " + quoted(key.Value) + " has no effect here"
			if s.right != "" {
				text += " (write it in " + quote.ASCII(cutPath(s.right)) + ")"
			}
			s.report(key.Line, joined(path), s.severity(), text)
		}
		return
	}
	if meant, ok := meantKey(key.Value); ok {
		severity := s.severity()
		if s.placed[n] {
			severity = Error
		}
		s.report(key.Line, joined(path), severity,
			"annotation "+quoted(key.Value)+" has no effect (did you mean "+quoted(meant)+"?)")
	}
}

func (s *strays) withoutPod(v value) {
	for _, name := range []string{"annotations", "labels"} {
		list := lookup(lookup(v.node, "metadata"), name)
		if list == nil || list.Kind != yaml.MappingNode {
			continue
		}
		if s.isForeign && !isKubernetes(v.field("apiVersion").text()) && name == "annotations" {
			s.read(list, []string{"metadata", name}) // some controllers copy them
		}
		for i := 0; i+1 < len(list.Content); i += 2 {
			key := list.Content[i]
			if s.claims[list] && s.isPersistentVolumeClaim(v) && key.Value == claimKey {
				continue
			}
			meant, near := meantKey(key.Value)
			switch {
			case meant == claimKey && s.isPersistentVolumeClaim(v), near && s.placed[list]:
				s.report(key.Line, "metadata."+name, Error, "annotation "+quoted(key.Value)+" has no effect (did you mean "+quoted(meant)+"?)")
			case near || annotation.IsKey(key.Value):
				s.report(key.Line, "metadata."+name, Warning,
					"annotation "+quoted(key.Value)+" has no effect on a "+quote.Name(s.object.Kind, maxQuoted)+", only on pods")
			}
		}
	}
}

// joined returns the text of a path: spec.containers[0].env.
func joined(path []string) string {
	var b strings.Builder
	for i, part := range path {
		if i > 0 && !strings.HasPrefix(part, "[") {
			b.WriteByte('.')
		}
		b.WriteString(part)
	}
	return b.String()
}

// claimKey is the key of the annotation that limits a claim.
const claimKey = annotation.KindLimits + "." + annotation.Domain

// maxKey bounds the keys that are examined. The API allows 253 bytes before the slash and
// 63 after it.
const maxKey = 320

// meantKey returns the correct key for a misspelled one. It returns false if the key has the domain, and if it resembles no
// such key. The result has the domain.
//
// The domain noderesource.dev belongs to all NRI plugins. So the key of another plugin is
// not taken for a misspelled one of this plugin if it differs by more than two letters.
func meantKey(key string) (string, bool) {
	if len(key) > maxKey || annotation.IsKey(key) || strings.ContainsFunc(key, func(r rune) bool { return r > unicode.MaxASCII }) {
		return "", false
	}
	prefix, scope, hasSlash := strings.Cut(key, "/")
	if hasSlash && scope != "" && annotation.IsKey(scope) {
		return scope + "/" + prefix, true // containers/limits.DOMAIN
	}
	lower := strings.ToLower(prefix)
	if before, after, ok := strings.Cut(lower, annotation.Domain+"."); ok && (before == "" || strings.HasSuffix(before, ".")) {
		// limits.DOMAIN.containers
		return before + annotation.Domain + "/" + strings.Trim(prefix[len(prefix)-len(after):]+"/"+scope, "/"), true
	}
	meant, ok := spelled(lower)
	if !ok {
		meant, ok = ordered(lower)
	}
	if ok && hasSlash {
		meant += "/" + scope
	}
	return meant, ok
}

// spelled finds the prefix that a misspelled one stands for.
func spelled(prefix string) (string, bool) {
	known := []string{annotation.Domain}
	for _, kind := range annotation.Kinds() {
		known = append(known, kind+"."+annotation.Domain)
	}
	if meant, ok := spelling.Nearest(prefix, known...); ok {
		return meant, true
	}
	kind, rest, _ := strings.Cut(prefix, ".")
	if meant, ok := spelling.Nearest(rest, annotation.Domain); ok {
		return kindOf(kind) + meant, true
	}
	// blkio.noderesource.com
	name, _ := cutLast(annotation.Domain)
	if rest, top := cutLast(prefix); top != "" && (rest == name || strings.HasSuffix(rest, "."+name)) {
		return strings.TrimSuffix(rest, name) + annotation.Domain, true
	}
	return "", false
}

// ordered finds the prefix with the same labels in another order, or without one of them:
// limits.noderesource.dev.
func ordered(prefix string) (string, bool) {
	domain := strings.Split(annotation.Domain, ".")
	ofDomain, kind, own := 0, "", false
	for label := range strings.SplitSeq(prefix, ".") {
		switch {
		case slices.Contains(domain, label):
			ofDomain++
			own = own || label == domain[0]
		case slices.Contains(annotation.Kinds(), label) && kind == "":
			kind, own = label, true
		default:
			return "", false
		}
	}
	if !own || ofDomain < len(domain)-1 {
		return "", false
	}
	return kindOf(kind) + annotation.Domain, true
}

// kindOf returns the beginning of a prefix: the known kind that is nearest to a label, or
// the label.
func kindOf(label string) string {
	if label == "" {
		return ""
	}
	if known, ok := spelling.Nearest(label, annotation.Kinds()...); ok {
		label = known
	}
	return label + "."
}

// cutLast cuts at the last dot. Without one the second result is "".
func cutLast(s string) (before, after string) {
	i := strings.LastIndexByte(s, '.')
	if i < 0 {
		return s, ""
	}
	return s[:i], s[i+1:]
}
