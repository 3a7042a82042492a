// Package strict decodes YAML documents strictly: a node policy, or tests of one. A field that is
// unknown, occurs twice, has no value or has a name in another case is an error, and so is a second
// document. Errors name the line and the path of each wrong field.
package strict

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
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
func Decode(data []byte, into any) (unknown field.ErrorList, _ error) {
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
	return unknownFields(strict, reflect.TypeOf(into)), nil
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

// unknownFields returns the errors of strict decoding into a document of this type, with the fields that may have been
// meant.
func unknownFields(strict []error, document reflect.Type) (errs field.ErrorList) {
	for _, err := range strict {
		unknown, ok := err.(kjson.FieldError) //nolint:errorlint // an element of the list, which wraps nothing
		if !ok {
			continue
		}
		detail := "unknown field"
		if hint := hint(unknown.FieldPath(), document); hint != "" {
			detail += " (" + hint + ")"
		}
		errs = append(errs, field.Forbidden(field.NewPath(unknown.FieldPath()), detail))
	}
	return errs
}

// hint returns which field may have been meant by an unknown one or, if none is near, the fields of its
// object.
func hint(path string, document reflect.Type) string {
	dot := strings.LastIndexByte(path, '.')
	object, written := path[:max(dot, 0)], path[dot+1:]
	names := slices.Sorted(maps.Keys(fields(typeAt(document, object))))
	meant, ok := spelling.Nearest(written, names...)
	switch {
	case !ok && len(names) == 0:
		return ""
	case !ok:
		return "the fields are " + strings.Join(names, ", ")
	}
	return "did you mean " + quote.Text(path[:len(path)-len(written)]+meant) + "?"
}

// typeAt returns the type of what a path selects in a document; nil for nothing.
func typeAt(t reflect.Type, path string) reflect.Type {
	for _, name := range step.FindAllString(path, -1) {
		if t = pointed(t); t != nil && (t.Kind() == reflect.Map || t.Kind() == reflect.Slice && name[0] == '[') {
			t = t.Elem()
		} else {
			t = fields(t)[name]
		}
	}
	return t
}

// fields returns the fields of a struct by their names in a document; none for another type.
func fields(t reflect.Type) map[string]reflect.Type {
	out := map[string]reflect.Type{}
	if t = pointed(t); t == nil || t.Kind() != reflect.Struct {
		return out
	}
	for _, f := range reflect.VisibleFields(t) {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); !f.Anonymous {
			out[cmp.Or(name, f.Name)] = f.Type
		}
	}
	return out
}

func pointed(t reflect.Type) reflect.Type {
	if t != nil && t.Kind() == reflect.Pointer {
		return t.Elem()
	}
	return t
}
