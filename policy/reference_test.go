package policy

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// ReferenceFacts returns a document with the defaults, and the paths of the required fields.
func ReferenceFacts() (defaults any, required []string) {
	_, errs := exampleDocument().policy()
	for _, err := range errs {
		if err.Type == field.ErrorTypeRequired {
			required = append(required, err.Field)
		}
	}
	return newDocument(Default()), required
}

// exampleDocument returns a document with an element of each list.
func exampleDocument() *document {
	d := newDocument(Default())
	d.Disks = []diskDocument{{Model: &modelDocument{}, QOS: &qosDocument{}}}
	d.Classes = map[string]classDocument{"NAME": {}}
	d.Rules, d.Budgets, d.Bursts = []ruleDocument{{}}, []budgetDocument{{}}, []string{""}
	d.Bounds.Max, d.Bounds.Min = []string{""}, []string{""}
	d.Rules[0].Bounds = d.Bounds
	selector := &selectorDocument{MatchExpressions: []requirementDocument{{}}}
	d.Rules[0].Match.NamespaceSelector, d.Rules[0].Match.PodSelector = selector, selector
	return d
}

// TestReferenceDefaults verifies the defaults on the page that Default does not have: those of elements of lists, and those of the example
// at the top.
func TestReferenceDefaults(t *testing.T) {
	page, err := os.ReadFile("../docs/reference/policy.md")
	if err != nil {
		t.Fatal(err)
	}
	_, example, _ := strings.Cut(string(page), "```yaml\n")
	example, _, _ = strings.Cut(example, "```")
	for without, with := range map[string]string{
		fileHead:                               example,
		fileHead + "rules: [{name: a}]":        fileHead + "rules: [{name: a, match: {}, class: none, annotations: allow, bounds: {}}]",
		fileHead + "disks: [{}]":               fileHead + "disks: [{match: {}, weights: auto}]",
		fileHead + "disks: [{qos: {}}]":        fileHead + "disks: [{qos: {rpct: 0, wpct: 0, min: 100, max: 100}}]",
		fileHead + "classes: {a: {weight: 1}}": fileHead + "classes: {a: {limits: [], weight: 1}}",
	} {
		want, err := ParseFile([]byte(without))
		if err != nil {
			t.Fatal(err)
		}
		got, err := ParseFile([]byte(with))
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s differs from the policy without these fields", with)
		}
	}
}
