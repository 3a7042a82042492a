package strict

import (
	"encoding/json"
	"errors"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Lines has the lines of the fields of a file. The zero value has none.
type Lines struct{ root yaml.Node }

// FindLines returns the lines of the fields of a file.
func FindLines(data []byte) *Lines {
	out := &Lines{}
	if yaml.Unmarshal(data, &out.root) != nil { // not reached: it was parsed before
		return &Lines{}
	}
	return out
}

// Of returns the line of a field, or of the one closest above it that is there; 0 for none.
func (l *Lines) Of(at *field.Path) int { return lineOf(&l.root, at.String()) }

// WithLines adds the line of each field in the file to its error. A field that is missing gets the
// line of the field that it belongs to, and none at the top level.
func WithLines(data []byte, errs field.ErrorList) field.ErrorList {
	if len(errs) == 0 {
		return nil
	}
	lines := FindLines(data)
	for _, err := range errs {
		if line := lineOf(&lines.root, err.Field); line > 0 {
			err.Field = "line " + strconv.Itoa(line) + ": " + err.Field
		}
	}
	return errs
}

const (
	maxErrors = 20      // of one file; the rest is counted
	maxText   = 1 << 10 // bytes of one error
)

// Join returns one error for the errors of a file's fields, each with its line, or nil if there are none.
// It has the first 20 of them, and a long text is cut in its middle: a file can be of any size.
func Join(data []byte, errs field.ErrorList) error {
	var texts []string
	for _, err := range WithLines(data, errs[:min(len(errs), maxErrors)]) {
		if text := cut(err.Error()); !slices.Contains(texts, text) {
			texts = append(texts, text)
		}
	}
	if more := len(errs) - maxErrors; more > 0 {
		texts = append(texts, "and "+strconv.Itoa(more)+" more")
	}
	switch len(texts) {
	case 0:
		return nil
	case 1:
		return errors.New(texts[0])
	}
	return errors.New("[" + strings.Join(texts, ", ") + "]")
}

// cut cuts the middle out of a long text. The place is at its begin, and the cause at its end.
func cut(text string) string {
	if len(text) <= maxText {
		return text
	}
	const half = maxText/2 - len("...")
	return strings.ToValidUTF8(text[:half], "") + "..." + strings.ToValidUTF8(text[len(text)-half:], "")
}

// step is a part of a field's path: a name, or the index of an element.
var step = regexp.MustCompile(`[^.\[\]]+|\[\d+\]`)

// lineOf returns the line of a field, or of the one closest above it that is there; 0 for none.
func lineOf(root *yaml.Node, path string) (line int) {
	at := root
	for _, name := range append([]string{""}, step.FindAllString(path, -1)...) {
		if name != "" {
			if at = below(at, name, &line); at == nil {
				return line
			}
		}
		for at.Kind == yaml.DocumentNode && len(at.Content) == 1 || at.Kind == yaml.AliasNode {
			if at.Kind == yaml.AliasNode {
				at = at.Alias
			} else {
				at = at.Content[0]
			}
		}
	}
	return line
}

// below returns the value of a field or an element, and sets its line; nil if there is none.
func below(at *yaml.Node, name string, line *int) *yaml.Node {
	switch at.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(at.Content); i += 2 {
			if key := at.Content[i]; key.Value == name {
				*line = key.Line
				return at.Content[i+1]
			}
		}
	case yaml.SequenceNode:
		i, err := strconv.Atoi(strings.Trim(name, "[]"))
		if err == nil && i < len(at.Content) {
			*line = at.Content[i].Line
			return at.Content[i]
		}
	}
	return nil
}

// notFinite returns the error for the first number that JSON does not have, such as .inf. It returns
// nil for another error.
func notFinite(data []byte, err error) error {
	var root yaml.Node
	if _, ok := errors.AsType[*json.UnsupportedValueError](err); !ok || yaml.Unmarshal(data, &root) != nil {
		return nil
	}
	at, value := infinite(nil, &root)
	if at == nil {
		return nil
	}
	errs := field.ErrorList{field.TypeInvalid(at, field.OmitValueType{}, "expected a finite number, found "+value)}
	return WithLines(data, errs).ToAggregate()
}

// infinite returns the path and the text of the first number below a node that is not finite.
func infinite(at *field.Path, n *yaml.Node) (_ *field.Path, text string) {
	if n.ShortTag() == "!!float" && strings.HasPrefix(strings.TrimLeft(n.Value, "+-"), ".") {
		if _, err := strconv.ParseFloat(n.Value, 64); err != nil { // ".inf" or ".nan", not ".5"
			return at, n.Value
		}
	}
	for i, child := range n.Content {
		below := at
		switch {
		case n.Kind == yaml.SequenceNode:
			below = at.Index(i)
		case n.Kind == yaml.MappingNode && i%2 == 0:
			continue
		case n.Kind == yaml.MappingNode:
			below = at.Child(n.Content[i-1].Value)
		}
		if found, text := infinite(below, child); found != nil {
			return found, text
		}
	}
	return nil, ""
}

// wrongAt returns the path of the first value that a decoder has refused. Of elements of lists, the
// decoder's own path has no index.
func (f *Format) wrongAt(values any, wrong *json.UnmarshalTypeError) *field.Path {
	names := strings.Split(wrong.Field, ".")
	names = slices.DeleteFunc(names, func(name string) bool { return slices.Contains(f.Embedded, name) })
	for _, skip := range []bool{false, true} { // the decoder's path has no keys of maps
		want := sought{kind: wrong.Value, isNoElement: wrong.Type.Kind() == reflect.Slice, skip: skip}
		if at := want.find(nil, values, f.example(), names); at != nil {
			return at
		}
	}
	return field.NewPath(wrong.Field) // not reached
}

// sought is a value that a decoder has refused.
type sought struct {
	kind        string // "string" or, for one number only, "number 1.5"
	isNoElement bool   // a list is expected in its place, so it is no element of one
	skip        bool   // an object above it may have names that are not in the decoder's path
}

// find returns the path of the first such value below a value, by the names of fields. A list or an object
// is not wrong where the example has one as well.
func (w *sought) find(at *field.Path, value, example any, names []string) *field.Path {
	list, isList := value.([]any)
	if len(names) > 0 || !w.isNoElement {
		for i := range list {
			if found := w.find(at.Index(i), list[i], firstOf(example), names); found != nil {
				return found
			}
		}
	}
	object, isObject := value.(map[string]any)
	switch {
	case len(names) == 0 && isKind(value, w.kind) && (!isObject && !isList || kindOf(value) != kindOf(example)):
		return at
	case !isObject:
		return nil
	case len(names) > 0 && object[names[0]] != nil:
		return w.find(at.Child(names[0]), object[names[0]], fieldOf(example, names[0]), names[1:])
	case !w.skip:
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(object)) {
		if found := w.find(at.Child(name), object[name], fieldOf(example, name), names); found != nil {
			return found
		}
	}
	return nil
}

// firstOf returns the first element of an example's list, nil if it is none.
func firstOf(example any) any {
	if list, ok := example.([]any); ok && len(list) > 0 {
		return list[0]
	}
	return nil
}

// fieldOf returns a field of an example's object, or the element that stands for each key; nil if it
// is none.
func fieldOf(example any, name string) any {
	object, _ := example.(map[string]any)
	if value, ok := object[name]; ok {
		return value
	}
	return object[Name]
}

// isKind reports whether a value is of a kind.
func isKind(value any, kind string) bool {
	kind, text, isOne := strings.Cut(kind, " ")
	if kindOf(value) != kind {
		return false
	}
	number, err := strconv.ParseFloat(text, 64)
	return !isOne || err == nil && value == number
}

// kindOf returns the name of a value's kind in errors of encoding/json.
func kindOf(value any) string {
	switch value.(type) {
	case string:
		return "string"
	case float64:
		return "number"
	case bool:
		return "bool"
	case map[string]any:
		return "object"
	case []any:
		return "array"
	}
	return ""
}
