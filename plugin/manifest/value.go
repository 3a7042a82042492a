package manifest

import (
	"iter"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/nri-blkio/nri-blkio/policy/quote"
)

// maxVisits bounds the fields and items that are read of one document, with visitsPerByte
// for each byte of its text. Aliases can name the same list many times.
const (
	maxVisits     = 1_000_000
	visitsPerByte = 8
)

// maxMerges bounds how deep merges ("<<") may be nested.
const maxMerges = 16

// value is a node of a document and its place.
type value struct {
	doc  *document
	node *yaml.Node  // nil if the value is absent or null; never an alias
	path *field.Path // in the object; nil for the object itself
}

// at returns the value of a node that may be an alias or null.
func (v value) at(n *yaml.Node, path *field.Path) value {
	if n != nil && n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if n != nil && isNull(n) {
		n = nil
	}
	return value{v.doc, n, path}
}

func (v value) exists() bool { return v.node != nil }

// pair is a field of a mapping.
type pair struct{ key, value *yaml.Node }

// pairs returns the fields of a mapping, those of merges first: of two fields with one
// name the later one holds.
func (v value) pairs() []pair {
	switch {
	case v.node == nil:
		return nil
	case v.node.Kind != yaml.MappingNode:
		v.fail("not an object with fields")
		return nil
	}
	return v.doc.pairs(v.node, 0)
}

func (d *document) pairs(n *yaml.Node, depth int) []pair {
	if depth > maxMerges || !d.visit(len(n.Content)/2+1) {
		return nil
	}
	var merged, own []pair
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, val := n.Content[i], n.Content[i+1]
		if key.Kind == yaml.AliasNode {
			key = key.Alias
		}
		if key.ShortTag() != "!!merge" {
			own = append(own, pair{key, val})
			continue
		}
		for _, from := range slices.Backward(mergedNodes(val)) { // the first one holds
			merged = append(merged, d.pairs(from, depth+1)...)
		}
	}
	return append(merged, own...)
}

func mergedNodes(n *yaml.Node) []*yaml.Node {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	switch n.Kind {
	case yaml.MappingNode:
		return []*yaml.Node{n}
	case yaml.SequenceNode:
		var out []*yaml.Node
		for _, item := range n.Content {
			if item.Kind == yaml.AliasNode {
				item = item.Alias
			}
			if item.Kind == yaml.MappingNode {
				out = append(out, item)
			}
		}
		return out
	}
	return nil
}

func (v value) field(names ...string) value {
	for _, name := range names {
		var found *yaml.Node
		for _, p := range v.pairs() {
			if p.key.Value == name {
				found = p.value
			}
		}
		v = v.at(found, child(v.path, name))
	}
	return v
}

// child returns the path of a field. It cuts a name that is too long for a field of the API.
func child(p *field.Path, name string) *field.Path {
	name = quote.Clip(name, maxKey)
	if p == nil {
		return field.NewPath(name)
	}
	return p.Child(name)
}

func index(p *field.Path, i int) *field.Path {
	if p == nil {
		return field.NewPath("").Index(i)
	}
	return p.Index(i)
}

func (v value) items() iter.Seq[value] {
	return func(yield func(value) bool) {
		switch {
		case v.node == nil:
			return
		case v.node.Kind != yaml.SequenceNode:
			v.fail("not a list")
			return
		}
		for i, n := range v.node.Content {
			if !v.doc.visit(1) || !yield(v.at(n, index(v.path, i))) {
				return
			}
		}
	}
}

// text returns a string, "" if it is absent.
func (v value) text() string {
	if v.node == nil {
		return ""
	}
	if !isText(v.node) {
		v.fail("not a string" + inQuotes(v.node))
		return ""
	}
	return v.node.Value
}

// isText reports whether the API server takes a node for a string. It reads YAML 1.1,
// where an unquoted "yes" is a boolean, and where a date is a string in JSON.
func isText(n *yaml.Node) bool {
	if n.Kind != yaml.ScalarNode {
		return false
	}
	switch n.ShortTag() {
	case "!!timestamp":
		return true
	case "!!str":
		_, isBool := boolean(n)
		return !isBool
	}
	return false
}

// inQuotes returns a hint for a scalar that was meant to be a string.
func inQuotes(n *yaml.Node) string {
	if n.Kind == yaml.MappingNode && len(n.Content) > 0 && n.Content[0].Kind == yaml.MappingNode { // {{ .Values.name }}
		return " " + helmHint
	}
	if n.Kind != yaml.ScalarNode {
		return ""
	}
	return " (write it in quotes: " + quoted(n.Value) + ")"
}

// isTrue returns a boolean, false if it is absent.
func (v value) isTrue() bool {
	if v.node == nil {
		return false
	}
	if b, ok := boolean(v.node); ok {
		return b
	}
	v.fail("not true or false")
	return false
}

// boolean returns the value of a scalar that YAML 1.1 takes for a boolean.
func boolean(n *yaml.Node) (isTrue, ok bool) {
	if n.Kind != yaml.ScalarNode || n.Style != 0 {
		return false, false
	}
	switch strings.ToLower(n.Value) {
	case "true", "yes", "y", "on":
		return true, true
	case "false", "no", "n", "off":
		return false, true
	}
	return false, false
}

// number returns a scalar that is a number or a string, "" if it is absent.
func (v value) number() string {
	switch {
	case v.node == nil:
		return ""
	case v.node.Kind != yaml.ScalarNode:
		v.fail("not a number")
		return ""
	}
	return v.node.Value
}

func (v value) fail(text string) { v.report(Error, text) }

func (v value) report(severity Severity, text string) {
	path := ""
	if v.path != nil {
		path = v.path.String()
	}
	line := 0
	if v.node != nil {
		line = v.node.Line
	}
	v.doc.report(line, path, severity, text)
}

// visit counts fields and items, and reports whether there may be as many.
func (d *document) visit(n int) bool {
	if d.visits < n {
		if d.visits >= 0 {
			d.report(0, "", Error, "aliases repeat more content than is read")
		}
		d.visits = -1
		return false
	}
	d.visits -= n
	return true
}
