package policy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/nri-blkio/nri-blkio/policy/annotation"
	"github.com/nri-blkio/nri-blkio/policy/spelling"
)

const (
	apiVersion = annotation.Domain + "/v1alpha1"
	fileKind   = "NodePolicy"
)

// ParseFile parses a node policy:
//
//	apiVersion: blkio.noderesource.dev/v1alpha1
//	kind: NodePolicy
//	mode: enforce
//	onError: {invalid: reject, unenforceable: reject, internal: ignore}
//	floors: {bps: 64Ki, iops: 8}
//	bounds: {max: ["* wbps=500Mi"], min: ["* wiops=50"], weight: {max: 100, min: 10}}
//	classes:
//	  bronze: {limits: ["* wbps=20Mi wiops=500"], weight: 50}
//	rules:
//	- name: batch
//	  match: {namespaces: ["batch-*"], podSelector: {matchLabels: {tier: batch}}, qos: [BestEffort]}
//	  mode: observe
//	  class: bronze
//	  annotations: allow
//	  bounds: {max: ["* wbps=100Mi"]}
//	writeback:
//	  {backstop: true, handOver: true, dirtyGuard: 256Mi, repair: auto, contested: majority,
//	  budget: {filesPerSecond: 100, extraBps: 16Mi, cpu: 10}}
//	disks:
//	- match: {names: ["nvme*"], models: ["*"], rotational: false}
//	  weights: auto
//	  model: {rbps: 3Gi, rseqiops: 400k, rrandiops: 350k, wbps: 2Gi, wseqiops: 300k, wrandiops: 250k}
//	  qos: {rpct: 95, rlat: 5ms, wpct: 95, wlat: 10ms, min: 50, max: 150}
//	reserve: {system: 30%}
//	hostKernelHandlers: ["", runc, crun]
//
// A field that is left out has the value of Default, where dirtyGuard is 0. A list of
// handlers replaces the default list. Decoding is strict: it is an error if a field is
// unknown, occurs twice, has no value, or has a name in another case, and if a second
// document follows. The error names the line and the path of each wrong field.
func ParseFile(data []byte) (*Policy, error) {
	p, err := parseFile(data)
	if err != nil {
		return nil, fmt.Errorf("parse policy: %w", err)
	}
	return p, nil
}

func parseFile(data []byte) (*Policy, error) {
	if err := oneDocument(data); err != nil {
		return nil, err
	}
	text, err := yaml.YAMLToJSONStrict(data) // an error for a field that occurs twice, with its line
	if err != nil {
		return nil, err
	}
	var values any
	if err := json.Unmarshal(text, &values); err != nil {
		return nil, err
	}
	if errs := withoutValue(nil, values); len(errs) > 0 {
		return nil, withLines(data, errs).ToAggregate()
	}
	d := newDocument(Default())
	unknown, err := kjson.UnmarshalStrict(text, d)
	if err != nil {
		return nil, typeError(data, values, err)
	}
	p, errs := d.policy()
	errs = append(unknownFields(unknown), errs...)
	return p, withLines(data, errs).ToAggregate()
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
func typeError(data []byte, values any, err error) error {
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
	errs := field.ErrorList{field.TypeInvalid(wrongAt(values, wrong), field.OmitValueType{}, "expected "+expected+", found "+wrong.Value)}
	return withLines(data, errs).ToAggregate()
}

// unknownFields returns the errors of strict decoding, with the fields that may have been
// meant.
func unknownFields(strict []error) (errs field.ErrorList) {
	index, class := regexp.MustCompile(`\[\d+\]`), regexp.MustCompile(`^classes\.[^.\[]+`)
	for _, err := range strict {
		unknown, ok := err.(kjson.FieldError) //nolint:errorlint // an element of the list, which wraps nothing
		if !ok {
			continue
		}
		detail := "unknown field"
		known := class.ReplaceAllString(index.ReplaceAllString(unknown.FieldPath(), "[0]"), "classes."+anyClass)
		if hint := spelling.Hint(known, fieldPaths()...); hint != "" {
			hint = strings.Replace(hint, "classes."+anyClass, class.FindString(unknown.FieldPath()), 1)
			detail += " (" + hint + ")"
		}
		errs = append(errs, field.Forbidden(field.NewPath(unknown.FieldPath()), detail))
	}
	return errs
}
