// Package migrate converts blockio classes of containerd and CRI-O to a node policy. It does no I/O,
// and builds on every system.
package migrate

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
	"github.com/nri-blkio/nri-blkio/policy/strict"
)

// classesDocument is the form of a file of blockio classes (Config and DevicesParameters in
// pkg/blockio of github.com/intel/goresctrl, which both runtimes use):
//
//	Classes:
//	  LowPrio:
//	  - Weight: 80
//	  - Devices: [/dev/sd[a-z], /dev/disk/by-id/*SSD*]
//	    ThrottleReadBps: 50M
//	    ThrottleWriteBps: 10M
//	    ThrottleReadIOPS: 10k
//	    ThrottleWriteIOPS: 5k
//	    Weight: 50
type classesDocument struct {
	Classes map[string][]elementDocument `json:"Classes"`
}

// elementDocument has parameters for the block devices that match one of Devices. Where elements
// match one device, the last one counts for each parameter.
type elementDocument struct {
	Devices           []string      `json:"Devices"`
	ThrottleReadBps   strict.Scalar `json:"ThrottleReadBps"`
	ThrottleWriteBps  strict.Scalar `json:"ThrottleWriteBps"`
	ThrottleReadIOPS  strict.Scalar `json:"ThrottleReadIOPS"`
	ThrottleWriteIOPS strict.Scalar `json:"ThrottleWriteIOPS"`
	Weight            strict.Scalar `json:"Weight"`
}

// class is a blockio class.
type class struct {
	name     string
	elements []element
}

// element has the parameters for some devices. A weight without devices applies to all devices that no other
// element matches.
type element struct {
	devices []string // empty, not nil: no device
	limits  [blkio.NumLimits]parameter
	weight  parameter
}

// parameter is a value as it is written; its text is "" if it is not set.
type parameter struct {
	name   string // in the file
	text   string
	amount blkio.Amount
}

// minWeight and maxWeight are the bounds of Weight.
const minWeight, maxWeight = 10, 1000

// parse parses a file of blockio classes. Decoding is stricter than that of the runtimes: a class has a value, and
// invalid values are errors.
func parse(data []byte) ([]class, error) {
	var d classesDocument
	unknown, err := strict.Decode(withCase(data), &d)
	if err != nil {
		return nil, fmt.Errorf("parse blockio classes: %w", err)
	}
	v := validator{errs: unknown}
	root := field.NewPath("Classes")
	isNested := false // as in the files of nri-resource-policy and cri-resource-manager
	for _, e := range unknown {
		if e.Field == "blockio" {
			isNested, e.Detail = true, "unknown field (move what is below blockio to the top)"
		}
	}
	if len(d.Classes) == 0 && !isNested {
		v.fail(field.Required(root, "the file has no class"))
	}
	var out []class
	for _, name := range slices.Sorted(maps.Keys(d.Classes)) { // the same errors and the same policy each time
		c := class{name: name}
		for i := range d.Classes[name] {
			c.elements = append(c.elements, d.Classes[name][i].element(&v, root.Child(name).Index(i)))
		}
		out = append(out, c)
	}
	if err := strict.Join(data, v.errs); err != nil {
		return nil, fmt.Errorf("parse blockio classes: %w", err)
	}
	return out, nil
}

// validator gathers the errors of the fields that it returns.
type validator struct{ errs field.ErrorList }

func (v *validator) fail(err *field.Error) { v.errs = append(v.errs, err) }

// element validates an element of a class.
func (d *elementDocument) element(v *validator, at *field.Path) element {
	out := element{devices: d.Devices}
	for k, p := range [blkio.NumLimits]parameter{
		blkio.Rbps:  {name: "ThrottleReadBps", text: string(d.ThrottleReadBps)},
		blkio.Wbps:  {name: "ThrottleWriteBps", text: string(d.ThrottleWriteBps)},
		blkio.Riops: {name: "ThrottleReadIOPS", text: string(d.ThrottleReadIOPS)},
		blkio.Wiops: {name: "ThrottleWriteIOPS", text: string(d.ThrottleWriteIOPS)},
	} {
		p.amount = v.amount(at.Child(p.name), blkio.Key(k), p.text)
		out.limits[k] = p
	}
	out.weight = parameter{name: "Weight", text: string(d.Weight)}
	if d.Weight == "" {
		return out
	}
	weight, p := annotation.ParseAmount(blkio.Wiops, out.weight.text)
	switch out.weight.amount = weight; {
	case p != nil: // its hint is about limits
		v.fail(field.Invalid(at.Child("Weight"), out.weight.text, p.Cause))
	case weight < minWeight || weight > maxWeight:
		v.fail(field.Invalid(at.Child("Weight"), out.weight.text, fmt.Sprintf("must be between %d and %d, inclusive", minWeight, maxWeight)))
	}
	return out
}

// amount parses a quantity; 0 for "".
func (v *validator) amount(at *field.Path, k blkio.Key, text string) blkio.Amount {
	if text == "" {
		return 0
	}
	amount, p := annotation.ParseAmount(k, text)
	if p == nil && amount == blkio.Max {
		p = &annotation.Problem{Cause: "a number is required"}
	}
	if p != nil {
		v.fail(field.Invalid(at, text, p.String()))
	}
	return amount
}

// title names the devices of an element in messages.
func (e *element) title() string { return "Devices " + strings.Join(e.devices, ", ") }
