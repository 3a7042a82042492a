package blkio

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// The bounds of io.weight.
const (
	MinWeight     = 1
	DefaultWeight = 100
	MaxWeight     = 10000
)

// Weights has the values of io.weight: those of single devices, and one for all others.
type Weights struct {
	Default uint32
	Devices map[Dev]uint32 // may be nil
}

// String formats the weights as the kernel does, sorted by device number.
func (w Weights) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "default %d\n", w.Default)
	for _, dev := range slices.SortedFunc(maps.Keys(w.Devices), Dev.Compare) {
		fmt.Fprintf(&b, "%s %d\n", dev, w.Devices[dev])
	}
	return b.String()
}

// On returns the weight that counts on a device.
func (w Weights) On(dev Dev) uint32 {
	if weight, found := w.Devices[dev]; found {
		return weight
	}
	return w.Default
}

// Equal reports whether all values are the same.
func (w Weights) Equal(other Weights) bool {
	return w.Default == other.Default && maps.Equal(w.Devices, other.Devices)
}

// With returns the weights with that of a device replaced, or removed if weight is 0.
func (w Weights) With(dev Dev, weight uint32) Weights {
	devices := maps.Clone(w.Devices)
	switch {
	case weight == 0:
		delete(devices, dev)
	case devices == nil:
		devices = map[Dev]uint32{dev: weight}
	default:
		devices[dev] = weight
	}
	return Weights{Default: w.Default, Devices: devices}
}

// ParseIOWeight parses io.weight, and io.bfq.weight.
//
//	default 100
//	8:16 200
//
// Source: Documentation/admin-guide/cgroup-v2.rst, "io.weight".
func ParseIOWeight(data string) (Weights, error) {
	var weights Weights
	n := 0
	for line := range strings.Lines(data) {
		n++
		if err := weights.parseLine(strings.TrimSpace(line)); err != nil {
			return Weights{}, fmt.Errorf("parse io.weight, line %d %.80q: %w", n, strings.TrimSpace(line), err)
		}
	}
	if weights.Default == 0 {
		return Weights{}, errors.New("parse io.weight: missing default")
	}
	return weights, nil
}

func (w *Weights) parseLine(line string) error {
	name, value, _ := strings.Cut(line, " ")
	if name == "" || name == unknownDevice {
		return nil
	}
	weight, err := parseWeight(strings.TrimSpace(value))
	if err != nil {
		return err
	}
	if name == "default" {
		w.Default = weight
		return nil
	}
	dev, err := ParseDev(name)
	if err != nil {
		return err
	}
	if w.Devices == nil {
		w.Devices = make(map[Dev]uint32)
	}
	w.Devices[dev] = weight
	return nil
}

func parseWeight(s string) (uint32, error) {
	n, err := strconv.ParseUint(s, 10, 32)
	if err != nil {
		return 0, err
	}
	if n < MinWeight || n > MaxWeight {
		return 0, fmt.Errorf("weight %d is not within %d..%d", n, MinWeight, MaxWeight)
	}
	return uint32(n), nil
}
