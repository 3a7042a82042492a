// Package expect tests a node policy: it compares the decisions about pods with those that an
// operator expects. The decisions are those of package check. The package does no I/O of its own,
// and builds on every system.
package expect

import (
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
	"github.com/nri-blkio/nri-blkio/policy/strict"
)

const (
	apiVersion = annotation.Domain + "/v1alpha1"
	fileKind   = "NodePolicyTest"
)

// None is the value of a field that expects no rule, no class, or no weight.
const None = "none"

// Case is one pod with the decisions that are expected for it.
type Case struct {
	Name string
	Line int // of the file
	Pod  Pod

	want pod
}

// pod has the expected decisions about a pod. Fields that are nil are not compared.
type pod struct {
	rule    *string
	mode    *policy.Mode
	ignored *bool // whether the rule ignores the annotations
	each    *cgroup
	named   map[string]*cgroup // by the name of the container
	total   *cgroup
}

// cgroup has the expected decision about a container, or about the pod as a whole. Fields that are nil are not
// compared.
type cgroup struct {
	class   *string
	refused *refusal
	limits  []limit // empty, not nil: no limit at all
	weights []limit
}

// refusal is whether a container is refused, and a part of the error; "" for any error.
type refusal struct {
	expected bool
	part     string
}

// limit has the expected values on the disks of a target: the values in limits for each of them that is set, or
// the weight.
type limit struct {
	target string // "" for the weight on all disks
	limits blkio.Limits
	weight blkio.Amount // [blkio.Unset] for none
	from   string       // the source of these values; "" is not compared
}

// Parse parses a file of cases:
//
//	apiVersion: blkio.noderesource.dev/v1alpha1
//	kind: NodePolicyTest
//	cases:
//	- name: batch gets bronze
//	  pod: {namespace: batch-1, labels: {tier: batch}, qosClass: Burstable, annotations: {}, containers: [main]}
//	  expect:
//	    rule: batch
//	    mode: observe
//	    annotationsIgnored: false
//	    eachContainer:
//	      class: bronze
//	      refused: false
//	      limits: [{target: "*", wbps: 20Mi, from: "rule batch, class bronze"}]
//	      weight: 50
//	    containers:
//	      main: {weights: [{target: rootfs, weight: 50}]}
//	    podTotal: {limits: []}
//	- name: the database
//	  pod: {manifest: db.yaml, kind: StatefulSet, name: db}
//
// Decoding is strict, as that of the node policy.
func Parse(data []byte) ([]Case, error) {
	var d fileDocument
	unknown, err := (&strict.Format{
		Example: exampleDocument, Named: []string{"cases[0].expect.containers"}, Embedded: []string{"valuesDocument"},
	}).Decode(data, &d)
	if err != nil {
		return nil, fmt.Errorf("parse tests: %w", err)
	}
	v := validator{errs: unknown}
	cases := v.cases(&d, strict.FindLines(data))
	if err := strict.Join(data, v.errs); err != nil {
		return nil, fmt.Errorf("parse tests: %w", err)
	}
	return cases, nil
}

// validator gathers the errors of the fields that it returns.
type validator struct{ errs field.ErrorList }

func (v *validator) fail(err *field.Error) { v.errs = append(v.errs, err) }

// cases validates a file.
func (v *validator) cases(d *fileDocument, lines *strict.Lines) []Case {
	v.errs = append(v.errs, strict.Header(d.APIVersion, apiVersion, d.Kind, fileKind)...)
	root := field.NewPath("cases")
	if len(d.Cases) == 0 {
		v.fail(field.Required(root, "a file has at least one case"))
	}
	var out []Case
	names := map[string]bool{}
	for i := range d.Cases {
		doc, at := &d.Cases[i], root.Index(i)
		switch {
		case doc.Name == "":
			v.fail(field.Required(at.Child("name"), "the output names the case"))
		case names[doc.Name]:
			v.fail(field.Duplicate(at.Child("name"), doc.Name))
		}
		names[doc.Name] = true
		out = append(out, Case{
			Name: doc.Name, Line: lines.Of(at),
			Pod: doc.Pod.pod(v, at.Child("pod")), want: doc.Expect.want(v, at.Child("expect")),
		})
	}
	return out
}

// want validates the expected decisions about a pod.
func (d *expectDocument) want(v *validator, at *field.Path) pod {
	out := pod{rule: d.Rule, mode: d.Mode, ignored: d.AnnotationsIgnored, named: map[string]*cgroup{}}
	v.name(at.Child("rule"), d.Rule)
	if d.Mode != nil && *d.Mode != policy.ModeEnforce && *d.Mode != policy.ModeObserve {
		v.fail(field.NotSupported(at.Child("mode"), *d.Mode, []policy.Mode{policy.ModeEnforce, policy.ModeObserve}))
	}
	if d.EachContainer != nil {
		out.each = d.EachContainer.want(v, at.Child("eachContainer"))
	}
	for _, name := range slices.Sorted(maps.Keys(d.Containers)) { // the same errors each time
		doc := d.Containers[name]
		out.named[name] = doc.want(v, at.Child("containers").Child(name))
	}
	if d.PodTotal != nil {
		out.total = d.PodTotal.want(v, at.Child("podTotal"))
	}
	if out.rule == nil && out.mode == nil && out.ignored == nil && out.each.isEmpty() && out.total.isEmpty() && !out.expectsNamed() {
		v.fail(field.Required(at, "a case expects something"))
	}
	return out
}

// expectsNamed reports whether something is expected for a single container.
func (p *pod) expectsNamed() bool {
	for _, c := range p.named {
		if !c.isEmpty() {
			return true
		}
	}
	return false
}

// isEmpty reports whether nothing is expected. It returns true for nil.
func (c *cgroup) isEmpty() bool {
	return c == nil || c.class == nil && c.refused == nil && c.limits == nil && len(c.weights) == 0
}

// want validates the expected decision about a container.
func (d *containerDocument) want(v *validator, at *field.Path) *cgroup {
	out := d.valuesDocument.want(v, at)
	out.class = d.Class
	v.name(at.Child("class"), d.Class)
	if d.Refused != nil {
		switch text := string(*d.Refused); text {
		case "":
			v.fail(field.Invalid(at.Child("refused"), text, "write a part of the error, true or false"))
		case "true", "false":
			out.refused = &refusal{expected: text == "true"}
		default:
			out.refused = &refusal{expected: true, part: text}
		}
	}
	return out
}

// want validates the expected values of a cgroup.
func (d *valuesDocument) want(v *validator, at *field.Path) *cgroup {
	out := &cgroup{}
	if d.Limits != nil {
		out.limits = make([]limit, 0, len(d.Limits))
	}
	for i := range d.Limits {
		out.limits = append(out.limits, d.Limits[i].want(v, at.Child("limits").Index(i)))
	}
	if d.Weight != nil {
		out.weights = append(out.weights, limit{weight: v.weight(at.Child("weight"), *d.Weight)})
	}
	for i := range d.Weights {
		w, at := &d.Weights[i], at.Child("weights").Index(i)
		v.target(at.Child("target"), w.Target)
		out.weights = append(out.weights, limit{target: w.Target, weight: v.weight(at.Child("weight"), w.Weight), from: w.From})
	}
	return out
}

// want validates the expected limits on the disks of a target.
func (d *limitDocument) want(v *validator, at *field.Path) limit {
	out := limit{target: d.Target, from: d.From}
	v.target(at.Child("target"), d.Target)
	for k, text := range [blkio.NumLimits]strict.Scalar{blkio.Rbps: d.Rbps, blkio.Wbps: d.Wbps, blkio.Riops: d.Riops, blkio.Wiops: d.Wiops} {
		if text == "" {
			continue
		}
		key := blkio.Key(k)
		amount, p := annotation.ParseAmount(key, string(text))
		switch {
		case p != nil:
			v.fail(field.Invalid(at.Child(key.String()), string(text), p.String()))
		case amount == blkio.Unset: // which is not compared
			v.fail(field.Invalid(at.Child(key.String()), string(text), "no limit is 0 (write max for no limit)"))
		}
		out.limits[key] = amount
	}
	if (d.Rbps + d.Wbps + d.Riops + d.Wiops) == "" {
		v.fail(field.Required(at, "write rbps, wbps, riops or wiops"))
	}
	return out
}

// name checks the name of an expected rule or class.
func (v *validator) name(at *field.Path, name *string) {
	if name != nil && *name == "" {
		v.fail(field.Invalid(at, *name, "write a name, or none"))
	}
}

// weight parses an expected weight. It returns [blkio.Unset] for none.
func (v *validator) weight(at *field.Path, text strict.Scalar) blkio.Amount {
	if text == None {
		return blkio.Unset
	}
	w, err := blkio.ParseAmount(string(text))
	if err != nil || w < blkio.MinWeight || w > blkio.MaxWeight {
		v.fail(field.Invalid(at, string(text), fmt.Sprintf("write a whole number from %d to %d, or %s", blkio.MinWeight, blkio.MaxWeight, None)))
	}
	return w
}

// target checks that a text is one target in the grammar of annotations, and no more.
func (v *validator) target(at *field.Path, text string) {
	if text == "" {
		v.fail(field.Required(at, "write a path, @VOLUME, pvc:CLAIM, rootfs or *"))
		return
	}
	l, problems := annotation.ParseLimits(at.String(), []string{limitEntry(text, blkio.Wbps)})
	switch {
	case problems[0] != nil:
		v.fail(field.Invalid(at, text, problems[0].String()))
	case l.Entries[0].Target.Text != text:
		v.fail(field.Invalid(at, text, "write the target alone, and each key as a field"))
	}
}

// limitEntry returns an entry of limits that selects the disks of a target for a key. It has a rate:
// with "max", the policy accepts a target without a disk.
func limitEntry(target string, k blkio.Key) string { return target + " " + k.String() + "=1Gi" }
