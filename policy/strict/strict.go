// Package strict decodes YAML documents strictly: a node policy, or tests of one. A field that is
// unknown, occurs twice, has no value or has a name in another case is an error, and so is a second
// document. Errors name the line and the path of each wrong field.
package strict

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/nri-blkio/nri-blkio/policy/spelling"
)

// Format describes documents of one kind.
type Format struct {
	// Example returns a document with each field. A misspelled name is compared with those of its
	// fields. An element of a map has the key [Name] there.
	Example func() any
	// Named are the paths of maps of objects, or of lists of objects. Each index in a path is 0.
	Named []string
	// Embedded are the names of the types that are embedded in the document's own type.
	Embedded []string
}

// Name stands for the key of each element of a map in [Format.Example].
const Name = "NAME"

// MaxSize is the largest size of a document in bytes. A ConfigMap has at most 1 MiB.
const MaxSize = 4 << 20

// Scalar is the text of a string, a number or a boolean.
type Scalar string

// UnmarshalJSON takes any value; the text of another one than a scalar is refused where it is
// parsed, with the path of its field.
func (s *Scalar) UnmarshalJSON(data []byte) error {
	*s = Scalar(data)
	if data[0] == '"' {
		return json.Unmarshal(data, (*string)(s))
	}
	return nil
}

// Header returns the errors of the fields that each document begins with. Each has one supported value.
func Header(apiVersion, wantVersion, kind, wantKind string) (errs field.ErrorList) {
	for _, f := range [][3]string{{"apiVersion", apiVersion, wantVersion}, {"kind", kind, wantKind}} {
		switch at, value, want := field.NewPath(f[0]), f[1], f[2]; value {
		case want:
		case "":
			errs = append(errs, field.Required(at, "write "+strconv.Quote(want)))
		default:
			errs = append(errs, field.NotSupported(at, value, []string{want}))
		}
	}
	return errs
}

// Decode decodes a document into a pointer. It returns an error for each unknown field, without
// lines: the caller adds its own errors, and makes one error of all with [Join].
func (f *Format) Decode(data []byte, into any) (unknown field.ErrorList, _ error) {
	if len(data) > MaxSize {
		return nil, fmt.Errorf("larger than %d MiB", MaxSize>>20)
	}
	if err := oneDocument(data); err != nil {
		return nil, err
	}
	text, err := yaml.YAMLToJSONStrict(data) // an error for a field that occurs twice, with its line
	if err != nil {
		return nil, errors.New(cut(err.Error()))
	}
	var values any
	if err := json.Unmarshal(text, &values); err != nil {
		return nil, err
	}
	if errs := withoutValue(nil, values); len(errs) > 0 {
		return nil, Join(data, errs)
	}
	strict, err := kjson.UnmarshalStrict(text, into)
	if err != nil {
		return nil, f.typeError(data, values, err)
	}
	return f.unknownFields(strict), nil
}

// oneDocument refuses what follows the end of the first document: the YAML
// decoder would leave it out without a word.
func oneDocument(data []byte) error {
	content, ended := false, false
	for line := range bytes.Lines(data) {
		text := string(bytes.TrimRight(line, " \t\r\n"))
		mark, rest, _ := strings.Cut(text, " ")
		if mark == "---" || mark == "..." {
			ended = ended || content
			text = rest
		}
		text = strings.TrimLeft(text, " \t")
		switch {
		case text == "" || text[0] == '#' || text[0] == '%' && !content:
		case ended:
			return errors.New("expected one YAML document, found more")
		default:
			content = true
		}
	}
	return nil
}

// withoutValue returns an error for each field without a value, which decoding leaves out.
func withoutValue(at *field.Path, value any) (errs field.ErrorList) {
	switch value := value.(type) {
	case nil:
		if at != nil {
			return field.ErrorList{field.Required(at, "")}
		}
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(value)) {
			errs = append(errs, withoutValue(at.Child(name), value[name])...)
		}
	case []any:
		for i := range value {
			errs = append(errs, withoutValue(at.Index(i), value[i])...)
		}
	}
	return errs
}

// typeError returns the error for a value of another type than that of its field. values are those
// of the file.
func (f *Format) typeError(data []byte, values any, err error) error {
	wrong, ok := errors.AsType[*json.UnmarshalTypeError](err)
	if !ok {
		return err
	}
	expected := map[reflect.Kind]string{
		reflect.Bool: "true or false", reflect.Int: "a whole number", reflect.Slice: "a list", reflect.String: "a string",
		reflect.Struct: "an object with fields", reflect.Map: "an object with fields",
	}[wrong.Type.Kind()]
	if wrong.Field == "" {
		return fmt.Errorf("expected %s, found %s", expected, wrong.Value)
	}
	detail := "expected " + expected + ", found " + wrong.Value
	switch kind, _, _ := strings.Cut(wrong.Value, " "); { // "number 1.5"
	case wrong.Type.Kind() == reflect.String && (kind == "number" || kind == "bool"):
		detail += " (write it in quotes)"
	case wrong.Type.Kind() == reflect.Slice && kind == "string":
		detail += " (write it in brackets: [a, b])"
	}
	errs := field.ErrorList{field.TypeInvalid(f.wrongAt(values, wrong), field.OmitValueType{}, detail)}
	return Join(data, errs)
}

// unknownFields returns the errors of strict decoding, with the fields that may have been
// meant.
func (f *Format) unknownFields(strict []error) (errs field.ErrorList) {
	for _, err := range strict {
		unknown, ok := err.(kjson.FieldError) //nolint:errorlint // an element of the list, which wraps nothing
		if !ok {
			continue
		}
		detail := "unknown field"
		if hint := f.hint(unknown.FieldPath()); hint != "" {
			detail += " (" + hint + ")"
		}
		errs = append(errs, field.Forbidden(field.NewPath(unknown.FieldPath()), detail))
	}
	return errs
}

var index = regexp.MustCompile(`\[\d+\]`)

// hint returns which field may have been meant by an unknown one or, if that is not known, the fields of
// its object.
func (f *Format) hint(path string) string {
	written, replace := index.ReplaceAllString(path, "[0]"), func(hint string) string { return hint }
	for _, named := range f.Named {
		rest, ok := strings.CutPrefix(written, named+".")
		key, after, hasField := strings.Cut(rest, ".")
		if !ok || !hasField {
			continue
		}
		key, list, isList := strings.Cut(key, "[") // a map of lists of objects
		if isList {
			list = "[" + list
		}
		written = named + "." + Name + list + "." + after
		replace = func(hint string) string { return strings.Replace(hint, named+"."+Name, named+"."+key, 1) }
	}
	paths := slices.DeleteFunc(f.Paths(), func(p string) bool { return strings.HasPrefix(written, p+".") }) // what it is in
	meant := replace(spelling.Hint(written, paths...))
	if meant == "" {
		return fieldsOf(written[:strings.LastIndex(written, ".")+1], paths)
	}
	indexes := index.FindAllString(path, -1)
	return index.ReplaceAllStringFunc(meant, func(zero string) string {
		if len(indexes) == 0 {
			return zero
		}
		first := indexes[0]
		indexes = indexes[1:]
		return first
	})
}

// fieldsOf returns a hint with the fields of an object whose path, with a dot, is parent. It returns ""
// if the object has no fields.
func fieldsOf(parent string, paths []string) string {
	var names []string
	for _, p := range paths {
		if name, ok := strings.CutPrefix(p, parent); ok && !strings.ContainsAny(name, ".[") {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	slices.Sort(names)
	return "the fields are " + strings.Join(names, ", ")
}

// Paths returns the paths of all fields of the example, those of a list's elements for the first one.
func (f *Format) Paths() []string {
	text, err := json.Marshal(f.Example())
	if err != nil {
		return nil // not reached: the types can be marshaled
	}
	var values any
	if err := json.Unmarshal(text, &values); err != nil {
		return nil // not reached
	}
	return paths(nil, values)
}

// paths returns the paths of a value and of the fields below it.
func paths(at *field.Path, value any) (out []string) {
	if at != nil {
		out = append(out, at.String())
	}
	switch value := value.(type) {
	case map[string]any:
		for name, value := range value {
			out = append(out, paths(at.Child(name), value)...)
		}
	case []any:
		if len(value) > 0 && reflect.TypeOf(value[0]).Kind() == reflect.Map {
			out = append(out, paths(at.Index(0), value[0])...)
		}
	}
	return out
}
