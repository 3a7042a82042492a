package record

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy"
)

// version is raised when an older program could misread a record.
const version = 2

// The kernel takes 64 KiB for one attribute (XATTR_SIZE_MAX in include/uapi/linux/limits.h),
// and 128 KiB for all of a cgroup (KERNFS_USER_XATTR_SIZE_LIMIT in
// fs/kernfs/kernfs-internal.h). A pod's directory has its containers' records.
const (
	MaxSize = 60 << 10
	podSize = 112 << 10
)

// Room returns the largest size of a record, in bytes, so that the records of a pod with
// this number of containers fit beside an edit of this size. The record of the pod has the
// edit on top of that.
func Room(containers, edit int) int { return min(MaxSize, (podSize-edit)/(1+containers)) }

// ErrParse means that a record was read and cannot be decoded.
var ErrParse = errors.New("parse record " + Xattr)

// ErrTooLarge means that a record is larger than the kernel stores.
var ErrTooLarge = errors.New("the record " + Xattr + " is too large")

// wire is a record as JSON. A setting is "SOURCE FILE KEY=VALUE... DEVICE...", one line for
// all devices that have the same values from the same source. SOURCE is the number of one of
// the sources, or "-".
type wire struct {
	Version int `json:"v"`
	Record
	Disks    map[string]string `json:"disks,omitempty"`
	Names    []string          `json:"names,omitempty"` // of sources
	Sources  []wireSource      `json:"sources,omitempty"`
	Settings []string          `json:"settings,omitempty"`
	Weights  []string          `json:"weights,omitempty"`
	Lowered  []string          `json:"lowered,omitempty"`
	Lent     []string          `json:"lent,omitempty"`
	Exits    []wireExit        `json:"exits,omitempty"`

	err error // of settings
}

// wireSource is a policy.Source with a basis. Its name is one of wire.Names.
type wireSource struct {
	Kind   string `json:"k"`
	Name   int    `json:"n"`
	Entry  int    `json:"e,omitempty"`
	Star   bool   `json:"s,omitempty"` // the target is *, and Target is empty
	Target string `json:"t,omitempty"`
	Basis  string `json:"b,omitempty"`
}

// reason is why a setting counts, and what has asked for it.
type reason struct {
	policy.Source
	policy.Basis
}

func reasonOf(s policy.Setting) reason { return reason{s.Source, s.Basis} }

type wireExit struct {
	Container string    `json:"container"`
	CgroupIDs []uint64  `json:"cgroupIDs"`
	Limits    []string  `json:"limits,omitempty"`
	At        time.Time `json:"at"`
}

// Marshal is the inverse of Parse. Equal records give equal bytes. To fit into room, it leaves out fields that
// are only shown: first the targets, then the warnings and skipped targets, then the names of disks. It does not leave
// out the rest, so the result may be larger than room. The error is ErrTooLarge if it is larger than MaxSize.
func (r *Record) Marshal(room int) ([]byte, error) {
	w := r.wire()
	for _, shorten := range []func(){
		func() {},
		func() {
			for i := range w.Sources {
				w.Sources[i].Target = ""
			}
		},
		func() { w.Skipped, w.Warnings = nil, nil },
		func() { w.Disks = nil },
	} {
		shorten()
		if data := w.encode(); len(data) <= room {
			return data, nil
		}
	}
	data := w.encode()
	if len(data) > MaxSize {
		return nil, fmt.Errorf("%w: %d bytes", ErrTooLarge, len(data))
	}
	return data, nil
}

func (w *wire) encode() []byte {
	b := bytes.NewBuffer(make([]byte, 0, 512))
	enc := json.NewEncoder(b)
	enc.SetEscapeHTML(false) // a "<" would take six bytes
	if err := enc.Encode(w); err != nil {
		panic(err) // strings, numbers and times only
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

func (r *Record) wire() *wire {
	w := &wire{Version: version, Record: *r}
	if len(r.Disks) > 0 {
		w.Disks = make(map[string]string, len(r.Disks))
	}
	for dev, name := range r.Disks {
		w.Disks[dev.String()] = name
	}
	known := map[reason]string{{}: "-"}
	w.Settings, w.Weights, w.Lowered = w.lines(r.Settings, known), w.lines(r.Weights, known), w.lines(r.Lowered, known)
	w.Lent = w.lines(r.Lent, known)
	for _, e := range r.Exits {
		w.Exits = append(w.Exits, wireExit{e.Container, e.CgroupIDs, w.lines(e.Limits, known), e.At})
	}
	return w
}

// lines puts the keys of one device from one source together, and then the devices.
func (w *wire) lines(s policy.Settings, known map[reason]string) []string {
	var out []string
	at := map[string]int{}      // of a line, by its text without devices
	head := make([]byte, 0, 64) // a record is written at each start of a container
	for len(s) > 0 {
		n := 1
		for n < len(s) && s[n].File() == s[0].File() && s[n].Dev == s[0].Dev && reasonOf(s[n]) == reasonOf(s[0]) {
			n++
		}
		head = append(head[:0], w.source(reasonOf(s[0]), known)...)
		head = append(append(head, ' '), s[0].File()...)
		for _, x := range s[:n] {
			head = append(append(head, ' '), x.Key.String()...)
			head = append(append(head, '='), x.Amount.String()...)
		}
		i, found := at[string(head)]
		if !found {
			i = len(out)
			out = append(out, string(head))
			at[out[i]] = i
		}
		if s[0].Key.HasDev() {
			out[i] += " " + s[0].Dev.String()
		}
		s = s[n:]
	}
	return out
}

// source returns the number of a source with a basis.
func (w *wire) source(s reason, known map[reason]string) string {
	if number, found := known[s]; found {
		return number
	}
	name := slices.Index(w.Names, s.Name)
	if name < 0 {
		name = len(w.Names)
		w.Names = append(w.Names, s.Name)
	}
	one := wireSource{Kind: s.Kind.String(), Name: name, Entry: s.Entry, Star: s.IsStar, Basis: s.Basis.String()}
	if !s.IsStar {
		one.Target = s.Target
	}
	known[s] = strconv.Itoa(len(w.Sources))
	w.Sources = append(w.Sources, one)
	return known[s]
}

// Parse decodes a record of this version. One of another version is an error, because its fields may have other
// meanings.
func Parse(data []byte) (*Record, error) {
	var w wire
	err := json.Unmarshal(data, &w) // of a value of another type, the error comes after all else is decoded
	if _, isSyntax := errors.AsType[*json.SyntaxError](err); !isSyntax && w.Version != version {
		err = fmt.Errorf("version %d, this program knows %d", w.Version, version)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrParse, err)
	}
	r, err := w.record()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrParse, err)
	}
	return r, nil
}

func (w *wire) record() (*Record, error) {
	r := w.Record // a copy, so that the texts of the settings are not kept
	if len(w.Disks) > 0 {
		r.Disks = make(map[blkio.Dev]string, len(w.Disks))
	}
	for _, text := range slices.Sorted(maps.Keys(w.Disks)) {
		dev, err := blkio.ParseDev(text)
		if err != nil {
			return nil, err
		}
		r.Disks[dev] = w.Disks[text]
	}
	r.Settings, r.Weights, r.Lowered = w.settings(w.Settings), w.settings(w.Weights), w.settings(w.Lowered)
	r.Lent = w.settings(w.Lent)
	for _, e := range w.Exits {
		r.Exits = append(r.Exits, Exit{e.Container, e.CgroupIDs, w.settings(e.Limits), e.At})
	}
	return &r, w.err
}

// settings decodes a list of settings. It keeps the first error in err.
func (w *wire) settings(lines []string) policy.Settings {
	var out []policy.Setting
	for _, line := range lines {
		list, err := w.line(line)
		if err != nil && w.err == nil {
			w.err = fmt.Errorf("setting %.80q: %w", line, err)
		}
		out = append(out, list...)
	}
	return policy.NewSettings(out...)
}

// line parses "SOURCE FILE KEY=VALUE... DEVICE...".
func (w *wire) line(line string) ([]policy.Setting, error) {
	words := strings.Fields(line)
	if len(words) < 3 {
		return nil, errors.New("not SOURCE FILE KEY=VALUE")
	}
	from, err := w.sourceAt(words[0])
	if err != nil {
		return nil, err
	}
	file, pairs := words[1], words[2:]
	end := slices.IndexFunc(pairs, func(word string) bool { return !strings.Contains(word, "=") })
	if end < 0 {
		end = len(pairs)
	}
	var devices []blkio.Dev
	for _, word := range pairs[end:] {
		dev, err := blkio.ParseDev(word)
		if err != nil {
			return nil, err
		}
		devices = append(devices, dev)
	}
	var out []policy.Setting
	for _, pair := range pairs[:end] {
		values, err := parsePair(file, pair, devices)
		if err != nil {
			return nil, err
		}
		for _, v := range values {
			out = append(out, policy.Setting{Value: v, Source: from.Source, Basis: from.Basis})
		}
	}
	return out, nil
}

// parsePair parses "KEY=VALUE" of these devices. A key of a later program is left out: it is
// not this one's to touch.
func parsePair(file, pair string, devices []blkio.Dev) ([]blkio.Value, error) {
	name, text, _ := strings.Cut(pair, "=")
	key, known := blkio.ParseKey(file, name)
	if !known {
		return nil, nil
	}
	amount, err := blkio.ParseAmount(text)
	switch {
	case err != nil:
		return nil, err
	case key.HasDev() != (len(devices) > 0):
		return nil, errors.New("devices do not fit the key")
	case !key.HasDev():
		return []blkio.Value{{Address: blkio.Address{Key: key}, Amount: amount}}, nil
	}
	var out []blkio.Value
	for _, dev := range devices {
		out = append(out, blkio.Value{Address: blkio.Address{Key: key, Dev: dev}, Amount: amount})
	}
	return out, nil
}

func (w *wire) sourceAt(number string) (reason, error) {
	if number == "-" {
		return reason{}, nil
	}
	i, err := strconv.Atoi(number)
	if err != nil || i < 0 || i >= len(w.Sources) || w.Sources[i].Name < 0 || w.Sources[i].Name >= len(w.Names) {
		return reason{}, fmt.Errorf("unknown source %.20q", number)
	}
	s := w.Sources[i]
	kind, known := policy.ParseSourceKind(s.Kind)
	if !known {
		return reason{}, fmt.Errorf("unknown kind of source %.20q", s.Kind)
	}
	basis, known := policy.ParseBasis(s.Basis)
	if !known {
		return reason{}, fmt.Errorf("unknown basis %.20q", s.Basis)
	}
	if s.Star {
		s.Target = "*"
	}
	return reason{policy.Source{Kind: kind, Name: w.Names[s.Name], Entry: s.Entry, IsStar: s.Star, Target: s.Target}, basis}, nil
}
