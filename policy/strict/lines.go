package strict

import (
	"encoding/json"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// WithLines adds the line of each field in the file to its error. A field that is missing gets the
// line of the field that it belongs to, and none at the top level.
func WithLines(data []byte, errs field.ErrorList) field.ErrorList {
	var root yaml.Node
	if len(errs) == 0 || yaml.Unmarshal(data, &root) != nil { // not reached: it was parsed before
		return errs
	}
	for _, err := range errs {
		if line := lineOf(&root, err.Field); line > 0 {
			err.Field = "line " + strconv.Itoa(line) + ": " + err.Field
		}
	}
	return errs
}

// Line returns the line of a field in the file, or of the one closest above it that is there; 0 for
// none.
func Line(data []byte, at *field.Path) int {
	var root yaml.Node
	if yaml.Unmarshal(data, &root) != nil {
		return 0
	}
	return lineOf(&root, at.String())
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

// wrongAt returns the path of the first value that a decoder has refused. Of elements of lists, the
// decoder's own path has no index.
func (f *Format) wrongAt(values any, wrong *json.UnmarshalTypeError) *field.Path {
	kind, _, _ := strings.Cut(wrong.Value, " ") // "number 1.5"
	names := strings.Split(wrong.Field, ".")
	names = slices.DeleteFunc(names, func(name string) bool { return slices.Contains(f.Embedded, name) })
	for _, skip := range []bool{false, true} { // the decoder's path has no keys of maps
		want := sought{kind, wrong.Type.Kind() == reflect.Slice, skip}
		if at := f.findKind(nil, values, names, want); at != nil {
			return at
		}
	}
	return field.NewPath(wrong.Field) // not reached
}

// sought is a value that a decoder has refused.
type sought struct {
	kind     string
	isNoList bool // a list is expected in its place, so it is no element of one
	skip     bool // an object above it may have names that are not in the decoder's path
}

// findKind returns the path of the first such value below a value, by the names of fields.
func (f *Format) findKind(at *field.Path, value any, names []string, want sought) *field.Path {
	if list, ok := value.([]any); ok && (len(names) > 0 || !want.isNoList) {
		for i := range list {
			if found := f.findKind(at.Index(i), list[i], names, want); found != nil {
				return found
			}
		}
	}
	object, isObject := value.(map[string]any)
	switch {
	case len(names) == 0 && kindOf(value) == want.kind && (!isObject || !f.isNamed(at)):
		return at
	case !isObject:
		return nil
	case len(names) > 0 && object[names[0]] != nil:
		return f.findKind(at.Child(names[0]), object[names[0]], names[1:], want)
	case !want.skip:
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(object)) {
		if found := f.findKind(at.Child(name), object[name], names, want); found != nil {
			return found
		}
	}
	return nil
}

// isNamed reports whether a path is that of a map of objects. The map is an object itself, so that an
// element is wrong where the decoder has refused an object.
func (f *Format) isNamed(at *field.Path) bool {
	return slices.Contains(f.Named, index.ReplaceAllString(at.String(), "[0]"))
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
