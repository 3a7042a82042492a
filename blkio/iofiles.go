package blkio

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Stat counts the I/O of one cgroup and its descendants on one device, in bytes and
// operations, since the cgroup or the device appeared.
type Stat struct {
	Rbytes, Wbytes uint64 // read and written
	Rios, Wios     uint64
	Dbytes, Dios   uint64 // discarded
	// CostUsage is the time of the disk that the I/O took by io.cost's model, in microseconds. It
	// is 0 where io.cost was never enabled.
	CostUsage uint64
	// CostWait is the time that threads waited for their share by io.cost, in microseconds. HasCostWait is false where
	// the kernel does not print it: most do with the parameter blkcg_debug_stats of blk_cgroup only.
	CostWait    uint64
	HasCostWait bool
	// CostVrate is the rate at which io.cost gives out cost, in percent of the model. Only the root cgroup has it, of
	// devices with io.cost enabled.
	CostVrate Percent
}

// Bytes returns the sum of the bytes read, written and discarded.
func (s Stat) Bytes() uint64 { return s.Rbytes + s.Wbytes + s.Dbytes }

// Limited returns the counter that a key of io.max limits.
func (s Stat) Limited(k Key) uint64 {
	return [NumLimits]uint64{Rbps: s.Rbytes, Wbps: s.Wbytes, Riops: s.Rios, Wiops: s.Wios}[k]
}

// String formats a line of io.stat without the device.
func (s Stat) String() string {
	text := fmt.Sprintf("rbytes=%d wbytes=%d rios=%d wios=%d dbytes=%d dios=%d",
		s.Rbytes, s.Wbytes, s.Rios, s.Wios, s.Dbytes, s.Dios)
	if s.CostVrate != 0 {
		text += " cost.vrate=" + s.CostVrate.String()
	}
	if s.CostUsage != 0 {
		text += fmt.Sprintf(" cost.usage=%d", s.CostUsage)
	}
	if s.HasCostWait {
		text += fmt.Sprintf(" cost.wait=%d", s.CostWait)
	}
	return text
}

// ParseIOStat parses io.stat. A device that is not listed has had no I/O. The map may be
// nil.
//
//	8:16 rbytes=1459200 wbytes=314773504 rios=192 wios=353 dbytes=0 dios=0
//	(1)  (2)
//
//	(1) device number; kernels between 5.13 and 6.0 print the number of a
//	    device without I/O and no newline after it, "7:1 7:0 8:16 rbytes=..."
//	(2) six counters, then those of cost and latency controllers if enabled
//
// Source: Documentation/admin-guide/cgroup-v2.rst, "io.stat"; ioc_pd_stat in block/blk-iocost.c.
func ParseIOStat(data string) (map[Dev]Stat, error) {
	var out map[Dev]Stat
	err := eachStat(data, func(dev Dev, stat Stat) {
		if out == nil {
			out = make(map[Dev]Stat)
		}
		out[dev] = stat
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// DevBytes is the sum of the bytes read from a device, written to it and discarded.
type DevBytes struct {
	Dev   Dev
	Bytes uint64
}

// ParseIOBytes parses the bytes of io.stat, in its order, without devices that have none.
func ParseIOBytes(data string) (out []DevBytes, err error) {
	err = eachStat(data, func(dev Dev, stat Stat) {
		if stat.Bytes() > 0 {
			out = append(out, DevBytes{dev, stat.Bytes()})
		}
	})
	return out, err
}

func eachStat(data string, do func(Dev, Stat)) error {
	n := 0
	for line := range strings.Lines(data) {
		n++
		dev, stat, ok, err := parseStatLine(line)
		if err != nil {
			return fmt.Errorf("parse io.stat, line %d %.80q: %w", n, strings.TrimSpace(line), err)
		}
		if ok {
			do(dev, stat)
		}
	}
	return nil
}

// parseStatLine reports false for a line that counts nothing.
func parseStatLine(line string) (dev Dev, stat Stat, ok bool, err error) {
	known, counted := false, false
	for field := range strings.FieldsSeq(line) {
		name, value, isPair := strings.Cut(field, "=")
		if !isPair {
			if counted {
				return dev, stat, false, fmt.Errorf("%q after the counters", field)
			}
			if known = field != unknownDevice; known {
				if dev, err = ParseDev(field); err != nil {
					return dev, stat, false, err
				}
			}
			continue
		}
		counted = true
		if name == "cost.vrate" {
			if stat.CostVrate, err = ParsePercent(value); err != nil {
				return dev, stat, false, fmt.Errorf("%s: %w", name, err)
			}
		}
		if counter := stat.counter(name); counter != nil {
			if *counter, err = strconv.ParseUint(value, 10, 64); err != nil {
				return dev, stat, false, fmt.Errorf("%s: %w", name, err)
			}
			stat.HasCostWait = stat.HasCostWait || name == "cost.wait"
			// Other keys are more of cost.*, latency's and a later kernel's.
		}
	}
	if counted && !known && !strings.Contains(line, unknownDevice) {
		return dev, stat, false, fmt.Errorf("counters without a device")
	}
	return dev, stat, known && counted, nil
}

func (s *Stat) counter(name string) *uint64 {
	switch name {
	case "rbytes":
		return &s.Rbytes
	case "wbytes":
		return &s.Wbytes
	case "rios":
		return &s.Rios
	case "wios":
		return &s.Wios
	case "dbytes":
		return &s.Dbytes
	case "dios":
		return &s.Dios
	case "cost.usage":
		return &s.CostUsage
	case "cost.wait":
		return &s.CostWait
	}
	return nil
}

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

// Pressure is the time since the cgroup appeared in which some, or all, of its threads that could run waited.
type Pressure struct {
	Some, Full time.Duration
}

// ParsePressure parses io.pressure.
//
//	some avg10=0.00 avg60=1.83 avg300=0.90 total=2765132
//	full avg10=0.00 avg60=1.79 avg300=0.89 total=2699120
//
// The total is in microseconds.
//
// Source: Documentation/accounting/psi.rst.
func ParsePressure(data string) (Pressure, error) {
	var out Pressure
	seen := 0
	for line := range strings.Lines(data) {
		kind, rest, _ := strings.Cut(line, " ")
		to := &out.Some
		switch kind {
		case "some":
		case "full":
			to = &out.Full
		default:
			continue // a later kernel's
		}
		_, total, _ := strings.Cut(rest, "total=")
		n, err := strconv.ParseInt(strings.TrimSpace(total), 10, 64)
		if err != nil || n < 0 || n > int64(time.Duration(1<<63-1)/time.Microsecond) {
			return Pressure{}, fmt.Errorf("parse io.pressure, %.80q: no total", strings.TrimSpace(line))
		}
		*to = time.Duration(n) * time.Microsecond
		seen++
	}
	if seen < 2 {
		return Pressure{}, fmt.Errorf("parse io.pressure, %.80q: no line \"some\" or \"full\"", data)
	}
	return out, nil
}

// String formats the pressure as the kernel does, without averages.
func (p Pressure) String() string {
	return fmt.Sprintf("some total=%d\nfull total=%d\n", p.Some.Microseconds(), p.Full.Microseconds())
}
