package annotation

import (
	"slices"
	"strconv"
	"strings"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy/quote"
)

// NoClass is the word of the node policy for no class. No class has this name.
const NoClass = "none"

// Class is the choice of a class of the node policy.
type Class struct {
	Key  string // of the annotation
	Name string // a DNS label, other than NoClass
}

// ErrorOf returns an error about the choice.
func (c *Class) ErrorOf(reason Reason, p *Problem) *Error {
	return New(Identity{From: Origin{Annotation: c.Key}, Text: c.Name, Reason: reason}, p)
}

// parseClass parses the value of a class annotation. If it is wrong, that is an error of the scope.
func (q *Scope) parseClass(key, value string) {
	name, p := strings.TrimSpace(value), (*Problem)(nil)
	switch {
	case len(value) > MaxValue:
		value, p = "", &Problem{"the value is longer than 64 KiB", hintClass}
	case name == "":
		value, p = "", &Problem{"the value is empty", hintClass}
	case name == NoClass:
		p = &Problem{quote.Text(NoClass) + " is not a class: only the node policy can leave a pod without one", hintClass}
	case !IsLabel(name):
		p = &Problem{"invalid class name", hintLabel}
	}
	if p != nil {
		q.errs = append(q.errs, New(Identity{From: Origin{Annotation: key}, Text: value}, p))
		return
	}
	q.Class = &Class{Key: key, Name: name}
}

// hintClass is the hint for a class annotation without a name.
const hintClass = "write the name of a class of the node policy, or remove the annotation"

// ParseLimits parses limits of the node policy: a list of entries in the grammar of the
// annotation. at is the field that has it. problems has the problem of each element, nil for a
// valid one.
func ParseLimits(at string, elements []string) (l *List, problems []*Problem) {
	l, problems = &List{From: Origin{Field: at}}, make([]*Problem, len(elements))
	for i, text := range elements {
		problems[i] = l.parseElement(text)
	}
	return l, problems
}

// parseElement adds the entry in an element.
func (l *List) parseElement(text string) *Problem {
	l.count++
	const example = `"* wbps=50Mi"`
	switch entries := slices.Collect(splitEntries(text)); {
	case len(text) > MaxValue:
		return &Problem{"the value is longer than 64 KiB", "name fewer targets, or use *"}
	case l.count > MaxEntries:
		return &Problem{"more than 256 entries", "name fewer targets, or use *"}
	case len(entries) == 0:
		return &Problem{"the value is empty", "write for example " + example}
	case len(entries) > 1:
		return &Problem{strconv.Itoa(len(entries)) + " entries in one element", "write one element of the list for each"}
	default:
		return l.add(entries[0], parsePolicyTarget, (*Entry).parseLimits)
	}
}

// WeightOfAll returns a weight of the node policy for all disks. at is the field that has it.
func WeightOfAll(at string, weight int) *List {
	text := strconv.Itoa(weight)
	l := parseWeightOfAll(Origin{Field: at}, text, text)
	if weight < blkio.MinWeight || weight > blkio.MaxWeight {
		l.Entries = nil
	}
	return l
}

// Targets returns the targets that the list can select. The list may be nil.
func (l *List) Targets() Targets {
	var t Targets
	t.add(l)
	t.tidy()
	return t
}
