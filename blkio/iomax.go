package blkio

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// unknownDevice is the text that kernels up to 6.x print for a device without a number of its own. These are
// the hidden paths of NVMe multipath.
const unknownDevice = "(unknown)"

// ParseIOMax parses the content of io.max. A device that is not listed has no limits.
// The map may be nil.
//
//	8:16 rbps=2097152 wbps=max riops=max wiops=120
//	(1)  (2)
//
//	(1) device number, whole disks only
//	(2) all four keys, "max" or a plain decimal of 2 or more
//
// Source: Documentation/admin-guide/cgroup-v2.rst, "io.max".
func ParseIOMax(data string) (map[Dev]Limits, error) {
	return parseDevLines("io.max", data, Limits{Max, Max, Max, Max}, func(to *Limits, name, value string) error {
		key, ok := ParseKey(IOMax, name)
		if !ok {
			return nil
		}
		rate, err := ParseAmount(value)
		to[key] = rate
		return err
	})
}

// FormatIOMax is the inverse of ParseIOMax, sorted by device number. The kernel does not
// accept its result if it has several lines: a write takes one DevLimits.
func FormatIOMax(m map[Dev]Limits) string {
	var b strings.Builder
	for _, dev := range slices.SortedFunc(maps.Keys(m), Dev.Compare) {
		limits := m[dev]
		for k, r := range limits {
			if r == Unset {
				limits[k] = Max
			}
		}
		b.WriteString(DevLimits{dev, limits}.String())
		b.WriteByte('\n')
	}
	return b.String()
}

// parseDevLines parses the lines "MAJ:MIN NAME=VALUE..." of the named file. The line of a device begins as initial, and set
// gets each NAME=VALUE of it. A name of a later kernel is for set to ignore.
func parseDevLines[T any](file, data string, initial T, set func(to *T, name, value string) error) (map[Dev]T, error) {
	var out map[Dev]T
	var of T
	n := 0
	for line := range strings.Lines(data) {
		n++
		first, pairs, _ := strings.Cut(strings.TrimSpace(line), " ")
		if first == "" || first == unknownDevice {
			continue
		}
		of = initial
		dev, err := ParseDev(first)
		if err == nil {
			err = setPairs(&of, pairs, set)
		}
		if err != nil {
			return nil, fmt.Errorf("parse %s, line %d %.80q: %w", file, n, strings.TrimSpace(line), err)
		}
		if out == nil {
			out = make(map[Dev]T)
		}
		out[dev] = of
	}
	return out, nil
}

func setPairs[T any](to *T, pairs string, set func(to *T, name, value string) error) error {
	for pair := range strings.FieldsSeq(pairs) {
		name, value, found := strings.Cut(pair, "=")
		if !found {
			return fmt.Errorf("%.20q is not KEY=VALUE", pair)
		}
		if err := set(to, name, value); err != nil {
			return fmt.Errorf("invalid %s %.20q: %w", name, value, err)
		}
	}
	return nil
}

// Limits has the four values of one device, indexed by Key. The zero value sets nothing. Limits are comparable
// with ==.
type Limits [NumLimits]Amount

// String formats the keys that are set, "rbps=max wbps=1048576".
func (l Limits) String() string {
	var b strings.Builder
	for k, r := range l {
		if r == Unset {
			continue
		}
		if b.Len() > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(Key(k).String())
		b.WriteByte('=')
		b.WriteString(r.String())
	}
	return b.String()
}

// IsZero reports whether no key is set.
func (l Limits) IsZero() bool { return l == Limits{} }

// DevLimits has the limits of one device: one line of io.max.
type DevLimits struct {
	Dev    Dev
	Limits Limits
}

// String formats a write to io.max, "8:16 rbps=max wbps=1048576".
func (d DevLimits) String() string { return d.Dev.String() + " " + d.Limits.String() }

// Burst lets a cgroup exceed a limit for a while, up to Rate. That takes credits, which the cgroup gains while it uses less than its limit.
// Full credits last for Seconds at Rate. The zero value means that the limit is never exceeded.
type Burst struct {
	Rate    Amount
	Seconds uint32
}

// IsZero reports whether the limit is never exceeded.
func (b Burst) IsZero() bool { return b == Burst{} }
