package policy

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
	"github.com/nri-blkio/nri-blkio/policy/strict"
)

// document is the form of a policy file. A scalar is a quantity, or the word or boolean of
// repair. The doc comments of the fields of this type and of those in it are the tables of docs/reference/policy.md:
// package reference has their form, and make generate writes the tables.
type document struct {
	header
	// `observe`: only decide and report. Nothing is limited or rejected, and the plugin removes its limits and disables
	// its io.cost. A rule can have another mode. `run --mode` overrides both.
	Mode Mode `json:"mode"`
	// What happens to a container whose limits or weights cannot be in force.
	OnError OnError `json:"onError"`
	// The smallest rates that a pod may request.
	Floors struct {
		// The smallest byte rate. Values: a quantity from 2.
		Bps scalar `json:"bps"`
		// The smallest operation rate. Values: a quantity from 2.
		Iops scalar `json:"iops"`
	} `json:"floors"`
	podsDocument
	// How limits hold for buffered writes, which the kernel writes to the disk later: [Writeback].
	Writeback struct {
		// Limit the pod to the sum of its containers' limits where all of them are limited.
		Backstop bool `json:"backstop"`
		// When a limited container ends, lift its limits before its cgroup is removed, and sync its filesystems ([hand-over]).
		HandOver bool `json:"handOver"`
		// The `memory.high` of containers with a write limit and without a memory limit. It bounds all of their memory. It is
		// set at the creation, and an in-place resize of the pod may remove it.
		// Values: a quantity from `16Mi`. Default: off.
		DirtyGuard *scalar `json:"dirtyGuard"`
		// Move files to their writers ([repair]). `auto`: only on kernels that are known to contain [the corrections].
		// Values: `auto`, `true`, `false`.
		Repair scalar `json:"repair"`
		// The owner of a file with several writers: the one that writes most of it, or the one with the smallest limit.
		Contested Contested `json:"contested"`
		// The most that the repair of files may use on the node.
		Budget struct {
			// Files per second that passes begin to work on. Values: 1 to 100000.
			FilesPerSecond int `json:"filesPerSecond"`
			// Bytes per second that passes write out early, on all disks of the node. Values: a quantity from `64Ki`.
			ExtraBps scalar `json:"extraBps"`
			// Percent of one CPU for passes. Values: 1 to 100.
			CPU int `json:"cpu"`
		} `json:"budget"`
	} `json:"writeback"`
	// Where the plugin enables io.cost, and with which model: [Disks]. Default: none.
	Disks []diskDocument `json:"disks,omitempty"`
	// What is kept of each disk: [Reserve].
	Reserve struct {
		// The share for everything outside pods, while it needs that. Values: `0%` to `90%`.
		System scalar `json:"system"`
	} `json:"reserve"`
	// Runtime handlers whose containers run on the node's kernel. `""` is that of pods without a RuntimeClass. A list
	// replaces the default, so keep `""` in it: without it these pods have no class and no budget. Values: a list of names.
	HostKernelHandlers []string `json:"hostKernelHandlers"`
}

// header has the fields of each Kubernetes object.
type header struct {
	// The version of the format. Values: `blkio.noderesource.dev/v1alpha1`.
	APIVersion string `json:"apiVersion"`
	// The kind of the file. Values: `NodePolicy`.
	Kind string `json:"kind"`
}

// podsDocument has the fields about pods.
type podsDocument struct {
	// What annotations may request: [Bounds].
	Bounds boundsDocument `json:"bounds"`
	// How much all bursts on a disk may take together, on top of the limits: [Bursts]. `max` allows any amount.
	// Values: a list with one entry for `*`. Default: none: a pod that asks for a burst is rejected.
	Bursts []string `json:"bursts,omitempty"`
	// Limits, a weight, or both: [Classes and rules]. NAME is at most 63 of a-z, 0-9 and `-`, does not begin or
	// end with `-`, and is not `none`. The field replaces the default. Default: `{batch: {weight: 10}}`.
	Classes map[string]classDocument `json:"classes,omitempty"`
	// The policy for the pods that a rule matches: [Classes and rules]. Default: none.
	Rules []ruleDocument `json:"rules,omitempty"`
	// The most that the pods of a namespace may be granted together: [Budgets]. Default: none.
	Budgets []budgetDocument `json:"budgets,omitempty"`
}

// scalar is the text of a string, a number or a boolean.
type scalar = strict.Scalar

// newDocument returns the document of a policy without its header. It also leaves out disks, rules, budgets, and bounds of rates,
// because the default has none, and classes, because a file that has some replaces those of the default.
func newDocument(p *Policy) *document {
	d := &document{Mode: p.Mode, OnError: p.OnError, HostKernelHandlers: p.HostKernelHandlers}
	bytes := func(n blkio.Amount) scalar { return scalar(annotation.FormatAmount(blkio.Wbps, n)) }
	d.Floors.Bps, d.Floors.Iops = bytes(p.Floors.Bps), scalar(annotation.FormatAmount(blkio.Wiops, p.Floors.Iops))
	d.Bounds.Weight.Max = &p.Bounds.MaxWeight
	d.Reserve.System = scalar(p.Reserve.Short())
	w := &p.Writeback
	d.Writeback.Backstop, d.Writeback.HandOver = w.Backstop, w.HandOver
	d.Writeback.Repair, d.Writeback.Contested = scalar(w.Repair), w.Contested
	d.Writeback.Budget.FilesPerSecond, d.Writeback.Budget.CPU = w.Budget.FilesPerSecond, w.Budget.CPU
	d.Writeback.Budget.ExtraBps = bytes(blkio.Amount(w.Budget.ExtraBps))
	if w.DirtyGuard != 0 {
		guard := bytes(blkio.Amount(w.DirtyGuard))
		d.Writeback.DirtyGuard = &guard
	}
	return d
}

func (d *document) policy() (*Policy, field.ErrorList) {
	v := validator{ruleNames: map[string]bool{}}
	v.errs = append(v.errs, strict.Header(d.APIVersion, apiVersion, d.Kind, fileKind)...)
	onError, floors := field.NewPath("onError"), field.NewPath("floors")
	writeback := field.NewPath("writeback")
	budget := writeback.Child("budget")
	w := &d.Writeback
	p := &Policy{
		Mode: oneOf(&v, field.NewPath("mode"), d.Mode, ModeEnforce, ModeObserve),
		OnError: OnError{
			Invalid:       oneOf(&v, onError.Child("invalid"), d.OnError.Invalid, Reject, Ignore),
			Unenforceable: oneOf(&v, onError.Child("unenforceable"), d.OnError.Unenforceable, Reject, Ignore),
			Internal:      oneOf(&v, onError.Child("internal"), d.OnError.Internal, Reject, Ignore),
		},
		Floors: Floors{
			Bps:  v.quantity(floors.Child("bps"), blkio.Wbps, d.Floors.Bps, minRate),
			Iops: v.quantity(floors.Child("iops"), blkio.Wiops, d.Floors.Iops, minRate),
		},
		Writeback: Writeback{
			Backstop:  w.Backstop,
			HandOver:  w.HandOver,
			Repair:    oneOf(&v, writeback.Child("repair"), Repair(w.Repair), RepairAuto, RepairOn, RepairOff),
			Contested: oneOf(&v, writeback.Child("contested"), w.Contested, Majority, Strict),
			Budget: Budget{
				FilesPerSecond: v.within(budget.Child("filesPerSecond"), w.Budget.FilesPerSecond, 100_000),
				ExtraBps:       uint64(v.quantity(budget.Child("extraBps"), blkio.Wbps, w.Budget.ExtraBps, minExtra)),
				CPU:            v.within(budget.Child("cpu"), w.Budget.CPU, 100),
			},
		},
		HostKernelHandlers: d.HostKernelHandlers,
	}
	if w.DirtyGuard != nil {
		p.Writeback.DirtyGuard = uint64(v.quantity(writeback.Child("dirtyGuard"), blkio.Wbps, *w.DirtyGuard, minGuard))
	}
	d.fill(p, &v)
	for i := range d.Disks {
		p.Disks = append(p.Disks, d.Disks[i].rule(&v, field.NewPath("disks").Index(i)))
	}
	var err error
	if p.Reserve, err = parseShare(string(d.Reserve.System)); err != nil {
		v.errs = append(v.errs, field.Invalid(field.NewPath("reserve", "system"), string(d.Reserve.System), err.Error()))
	}
	if v.checkGuarantees(p); len(v.errs) > 0 {
		return nil, v.errs
	}
	return p, nil
}

func (d *podsDocument) fill(p *Policy, v *validator) {
	p.Bounds = d.Bounds.bounds(v, field.NewPath("bounds"), &Bounds{}, &p.Floors)
	p.Bursts = v.bound(field.NewPath("bursts"), d.Bursts)
	if d.Classes == nil {
		p.Classes = Default().Classes
	}
	for _, name := range slices.Sorted(maps.Keys(d.Classes)) { // the same errors each time
		if p.Classes == nil {
			p.Classes = make(map[string]*Class, len(d.Classes))
		}
		class := d.Classes[name]
		p.Classes[name] = class.class(v, field.NewPath("classes").Child(name), name, p)
	}
	for i := range d.Rules {
		p.Rules = append(p.Rules, d.Rules[i].rule(v, field.NewPath("rules").Index(i), p))
	}
	v.checkNamespaceKeys(p)
	for i := range d.Budgets {
		p.Budgets = append(p.Budgets, d.Budgets[i].budget(v, field.NewPath("budgets").Index(i), &p.Floors))
	}
}

// validator gathers the errors of the fields that it returns.
type validator struct {
	errs      field.ErrorList
	ruleNames map[string]bool // of the rules so far
}

func oneOf[T ~string](v *validator, at *field.Path, value T, allowed ...T) T {
	if !slices.Contains(allowed, value) {
		v.errs = append(v.errs, field.NotSupported(at, value, allowed))
	}
	return value
}

// within checks a number from 1 to high.
func (v *validator) within(at *field.Path, n, high int) int {
	if n < 1 || n > high {
		v.errs = append(v.errs, field.Invalid(at, n, fmt.Sprintf("must be between %d and %d, inclusive", 1, high)))
	}
	return n
}

// quantity parses a quantity of the unit of key k.
func (v *validator) quantity(at *field.Path, k blkio.Key, text scalar, least blkio.Amount) blkio.Amount {
	n, p := annotation.ParseAmount(k, string(text))
	switch {
	case p == nil && n == blkio.Max:
		p = &annotation.Problem{Cause: "a limit is required"}
	case p == nil && n < least:
		p = &annotation.Problem{Cause: "must be at least " + annotation.FormatAmount(k, least)}
	}
	if p != nil {
		v.errs = append(v.errs, field.Invalid(at, string(text), p.String()))
	}
	return n
}

const (
	apiVersion = annotation.Domain + "/v1alpha1"
	fileKind   = "NodePolicy"
)

// ParseFile parses a node policy. The doc comments of its fields are those of document, and deploy/policy.yaml is an example.
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
	d := newDocument(Default())
	unknown, err := strict.Decode(data, d)
	if err != nil {
		return nil, err
	}
	if d.Kind == "" && slices.ContainsFunc(unknown, func(e *field.Error) bool { return e.Field == "policyFile" || e.Field == "image" }) {
		return nil, errors.New("this is a file of Helm values (write the policy in a file of its own, for --set-file policyFile=policy.yaml)")
	}
	p, errs := d.policy()
	return p, strict.Join(data, append(unknown, errs...))
}
