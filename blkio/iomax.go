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
	var out map[Dev]Limits
	err := eachDevLine("io.max", data, func(dev Dev, pairs string) error {
		limits := Limits{Max, Max, Max, Max}
		for pair := range strings.FieldsSeq(pairs) {
			name, value, ok := strings.Cut(pair, "=")
			if !ok {
				return fmt.Errorf("%q is not KEY=VALUE", pair)
			}
			key, ok := ParseKey(IOMax, name)
			if !ok {
				continue // a key of a later kernel
			}
			rate, err := ParseAmount(value)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			limits[key] = rate
		}
		if out == nil {
			out = make(map[Dev]Limits)
		}
		out[dev] = limits
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
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

// eachDevLine calls fn for each line "MAJ:MIN rest" of the named file.
func eachDevLine(file, data string, fn func(dev Dev, rest string) error) error {
	n := 0
	for line := range strings.Lines(data) {
		n++
		first, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		if first == "" || first == unknownDevice {
			continue
		}
		dev, err := ParseDev(first)
		if err == nil {
			err = fn(dev, rest)
		}
		if err != nil {
			return fmt.Errorf("parse %s, line %d %.80q: %w", file, n, strings.TrimSpace(line), err)
		}
	}
	return nil
}
