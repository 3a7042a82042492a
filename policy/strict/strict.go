// Package strict decodes YAML documents strictly: a node policy, or tests of one. A field that is
// unknown, occurs twice, has no value or has a name in another case is an error, and so is a second
// document. Errors name the line and the path of each wrong field.
package strict

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	yaml3 "go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/nri-blkio/nri-blkio/policy/quote"
	"github.com/nri-blkio/nri-blkio/policy/spelling"
)

// Format describes documents of one kind.
type Format struct {
	// Example returns a document with each field. A misspelled name is compared with those of its
	// fields. An element of a map has the key [Name] there.
	Example func() any
	// Named are the paths of maps of objects, or of lists of objects. Each index in a path is 0.
	Named []string
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
		return nil, typeError(data, text, err)
	}
	return f.unknownFields(strict), nil
}

// oneDocument refuses a second document, and any other text after the end of the first one, because the decoder
// would silently leave it out. It also refuses a document after an empty one, because the decoder would read
// the empty one.
func oneDocument(data []byte) error {
	dec := yaml3.NewDecoder(bytes.NewReader(data))
	for first := true; ; first = false {
		var doc yaml3.Node
		switch err := dec.Decode(&doc); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil && first: // also of text that follows: the parser reads ahead
			return err
		case err != nil, !first && len(doc.Content) > 0 && doc.Content[0].ShortTag() != "!!null":
			return errors.New("expected one YAML document, found more")
		}
	}
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

// typeError returns the error for a value of another type than that of its field. text is the document as JSON.
func typeError(data, text []byte, err error) error {
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
	errs := field.ErrorList{field.TypeInvalid(pathAt(text, wrong.Offset), field.OmitValueType{}, detail)}
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

// hint returns which field may have been meant by an unknown one or, if none is near, the fields of its
// object.
func (f *Format) hint(path string) string {
	object, written := cutLast(path)
	inExample, names := f.inExample(object), []string(nil)
	for _, known := range f.Paths() {
		if of, name := cutLast(known); of == inExample && name != Name && !strings.Contains(name, "[") {
			names = append(names, name)
		}
	}
	meant, ok := spelling.Nearest(written, names...)
	switch {
	case !ok && len(names) == 0:
		return ""
	case !ok:
		slices.Sort(names)
		return "the fields are " + strings.Join(names, ", ")
	}
	return "did you mean " + quote.Text(path[:len(path)-len(written)]+meant) + "?"
}

// cutLast cuts the last name off a path.
func cutLast(path string) (object, name string) {
	dot := strings.LastIndexByte(path, '.')
	return path[:max(dot, 0)], path[dot+1:]
}

// inExample returns the path that an object has in the example.
func (f *Format) inExample(object string) string {
	object = index.ReplaceAllString(object, "[0]")
	for _, named := range f.Named {
		rest, ok := strings.CutPrefix(object, named+".")
		if !ok {
			continue
		}
		key, after, hasField := strings.Cut(rest, ".")
		_, list, isList := strings.Cut(key, "[") // a map of lists of objects
		if object = named + "." + Name; isList {
			object += "[" + list
		}
		if hasField {
			object += "." + after
		}
	}
	return object
}

// Paths returns the paths of all fields of the example, those of a list's elements for the first one.
func (f *Format) Paths() []string { return paths(nil, f.example()) }

// example returns the values of the example.
func (f *Format) example() (values any) {
	text, err := json.Marshal(f.Example())
	if err != nil || json.Unmarshal(text, &values) != nil {
		return nil // not reached: the types can be marshaled
	}
	return values
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
