package policy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
	"github.com/nri-blkio/nri-blkio/policy/quote"
	"github.com/nri-blkio/nri-blkio/policy/spelling"
)

const (
	apiVersion = annotation.Domain + "/v1alpha1"
	fileKind   = "NodePolicy"
)

// Mode selects whether limits are enforced or only reported.
type Mode string

const (
	// ModeEnforce carries limits out.
	ModeEnforce Mode = "enforce"
	// ModeObserve decides and reports only.
	ModeObserve Mode = "observe"
)

// Action is what to do about an error.
type Action string

const (
	// Reject fails the container's creation.
	Reject Action = "reject"
	// Ignore lets the container start, and reports the error in the log, status and
	// metrics.
	Ignore Action = "ignore"
)

// OnError has an action for each cause of an error.
type OnError struct {
	Invalid       Action `json:"invalid"`
	Unenforceable Action `json:"unenforceable"`
	Internal      Action `json:"internal"`
}

// Floors are the smallest rates that may be asked for. A container under much
// lower ones can hang in uninterruptible sleep, where nothing can kill it.
type Floors struct {
	Bps  blkio.Amount // bytes per second
	Iops blkio.Amount // operations per second
}

// minRate is the smallest rate that the kernel takes (tg_set_limit in
// block/blk-throttle.c).
const minRate blkio.Amount = 2

// of returns the floor of a key; never less than the kernel's own.
func (f Floors) of(k blkio.Key) blkio.Amount {
	if k.IsBytes() {
		return max(f.Bps, minRate)
	}
	return max(f.Iops, minRate)
}

// Policy is the policy of a node. It has no useful zero value: take Default or
// ParseFile.
type Policy struct {
	Mode      Mode
	OnError   OnError
	Floors    Floors
	Bounds    Bounds
	Writeback Writeback
	// HostKernelHandlers are the runtime handlers that are known to run
	// containers on the host's own kernel. "" is the runtime's default.
	HostKernelHandlers []string
}

// Default returns the policy of a node that has no policy file.
func Default() *Policy {
	return &Policy{
		Mode:    ModeEnforce,
		OnError: OnError{Invalid: Reject, Unenforceable: Reject, Internal: Ignore},
		Floors:  Floors{Bps: 64 << 10, Iops: 8},
		Bounds:  Bounds{MaxWeight: blkio.DefaultWeight},
		Writeback: Writeback{
			Backstop: true, HandOver: true, Repair: RepairAuto, Contested: Majority,
			Budget: Budget{FilesPerSecond: 100, ExtraBps: 16 << 20, CPU: 10},
		},
		HostKernelHandlers: []string{
			"", "runc", "crun", "youki", "nvidia", "nvidia-cdi", "nvidia-legacy",
		},
	}
}

// ParseFile parses a node policy:
//
//	apiVersion: blkio.noderesource.dev/v1alpha1
//	kind: NodePolicy
//	mode: enforce
//	onError: {invalid: reject, unenforceable: reject, internal: ignore}
//	floors: {bps: 64Ki, iops: 8}
//	bounds: {weight: {max: 100}}
//	writeback:
//	  {backstop: true, handOver: true, dirtyGuard: 256Mi, repair: auto, contested: majority,
//	  budget: {filesPerSecond: 100, extraBps: 16Mi, cpu: 10}}
//	hostKernelHandlers: ["", runc, crun]
//
// What is left out is as in Default (there is no dirtyGuard there); a list of handlers replaces the default
// one. Unknown, doubled, empty and wrongly cased fields are errors, and so is a
// second document.
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
	// Strict as to doubled fields. Decoding JSON into structs is lax in the
	// case of names and takes null for absent, hence the maps below.
	doc, err := yaml.YAMLToJSONStrict(data)
	if err != nil {
		return nil, err
	}
	if err := notYet(doc, "exempt", "classes", "rules"); err != nil {
		return nil, err
	}
	top, err := object("", doc, "apiVersion", "kind", "mode", "onError", "floors", "bounds", "writeback", "hostKernelHandlers")
	if err != nil {
		return nil, err
	}
	if err := header(top); err != nil {
		return nil, err
	}
	p := Default()
	return p, errors.Join(
		choice(top["mode"], "mode", &p.Mode, ModeEnforce, ModeObserve),
		p.OnError.parse(top["onError"]),
		p.Floors.parse(top["floors"]),
		p.Bounds.parse(top["bounds"]),
		p.Writeback.parse(top["writeback"]),
		p.parseHandlers(top["hostKernelHandlers"]),
	)
}

// notYet is an error for a field of a later version. The hint that lists the fields
// must not name it.
func notYet(doc []byte, fields ...string) error {
	var top map[string]json.RawMessage
	if json.Unmarshal(doc, &top) != nil {
		return nil // object has the error
	}
	for _, later := range fields {
		if top[later] != nil {
			return fmt.Errorf("%s: not supported", later)
		}
	}
	return nil
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

func header(top map[string]json.RawMessage) error {
	for _, want := range [][2]string{{"apiVersion", apiVersion}, {"kind", fileKind}} {
		field, value := want[0], want[1]
		if top[field] == nil {
			return fmt.Errorf("%s: missing (write %q)", field, value)
		}
		var have string
		if err := json.Unmarshal(top[field], &have); err != nil || have != value {
			return fmt.Errorf("%s: unknown value %s (write %q)", field, show(top[field]), value)
		}
	}
	return nil
}

// object decodes a JSON object that may have these fields, each with a value.
func object(field string, raw json.RawMessage, allowed ...string) (map[string]json.RawMessage, error) {
	where := ""
	if field != "" {
		where = field + ": "
	}
	var m map[string]json.RawMessage
	if err := json.Unmarshal(raw, &m); err != nil || m == nil {
		return nil, fmt.Errorf("%sexpected an object", where)
	}
	var names []string
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names) // the same error each time
	for _, name := range names {
		if !slices.Contains(allowed, name) {
			hint := spelling.Hint(name, allowed...)
			if hint == "" {
				hint = "the fields are " + strings.Join(allowed, ", ")
			}
			return nil, fmt.Errorf("%sunknown field %s (%s)", where, quote.Text(name), hint)
		}
		if string(m[name]) == "null" {
			return nil, fmt.Errorf("%s%s: missing value", where, name)
		}
	}
	return m, nil
}

func choice[T ~string](raw json.RawMessage, field string, to *T, allowed ...T) error {
	if raw == nil {
		return nil
	}
	var s T
	if err := json.Unmarshal(raw, &s); err != nil || !slices.Contains(allowed, s) {
		names := make([]string, len(allowed))
		for i, a := range allowed {
			names[i] = string(a)
		}
		return fmt.Errorf("%s: unknown value %s (write %s)", field, show(raw), strings.Join(names, " or "))
	}
	*to = s
	return nil
}

func (o *OnError) parse(raw json.RawMessage) error {
	if raw == nil {
		return nil
	}
	m, err := object("onError", raw, "invalid", "unenforceable", "internal")
	if err != nil {
		return err
	}
	return errors.Join(
		choice(m["invalid"], "onError.invalid", &o.Invalid, Reject, Ignore),
		choice(m["unenforceable"], "onError.unenforceable", &o.Unenforceable, Reject, Ignore),
		choice(m["internal"], "onError.internal", &o.Internal, Reject, Ignore),
	)
}

func (f *Floors) parse(raw json.RawMessage) error {
	if raw == nil {
		return nil
	}
	m, err := object("floors", raw, "bps", "iops")
	if err != nil {
		return err
	}
	return errors.Join(
		floor(m["bps"], "floors.bps", blkio.Wbps, &f.Bps),
		floor(m["iops"], "floors.iops", blkio.Wiops, &f.Iops),
	)
}

// floor parses a quantity, which YAML may hold as a string or as a number.
func floor(raw json.RawMessage, field string, k blkio.Key, to *blkio.Amount) error {
	if raw == nil {
		return nil
	}
	text := string(raw)
	if text[0] == '"' {
		if err := json.Unmarshal(raw, &text); err != nil {
			return fmt.Errorf("%s: %w", field, err)
		}
	}
	rate, p := annotation.ParseAmount(k, text)
	switch {
	case p == nil && rate == blkio.Max:
		p = &annotation.Problem{Cause: `"max" is not allowed here`}
	case p == nil && rate < minRate:
		p = &annotation.Problem{Cause: text + " is too small", Hint: "minimum 2"}
	}
	if p != nil {
		return fmt.Errorf("%s: %s", field, p)
	}
	*to = rate
	return nil
}

func (p *Policy) parseHandlers(raw json.RawMessage) error {
	if raw == nil {
		return nil
	}
	var handlers []*string // pointers, since null in a list would become ""
	if err := json.Unmarshal(raw, &handlers); err != nil || slices.Contains(handlers, nil) {
		return errors.New("hostKernelHandlers: expected a list of strings")
	}
	p.HostKernelHandlers = make([]string, len(handlers))
	for i, h := range handlers {
		p.HostKernelHandlers[i] = *h
	}
	return nil
}

// show quotes a JSON value for an error.
func show(raw json.RawMessage) string {
	var s string
	if err := json.Unmarshal(raw, &s); err != nil {
		s = string(raw)
	}
	return quote.Text(s)
}
