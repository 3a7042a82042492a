package blkio

import (
	"fmt"
	"strconv"
	"strings"
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
	n := 0
	for line := range strings.Lines(data) {
		n++
		dev, stat, ok, err := parseStatLine(line)
		if err != nil {
			return nil, fmt.Errorf("parse io.stat, line %d %.80q: %w", n, strings.TrimSpace(line), err)
		}
		if !ok {
			continue
		}
		if out == nil {
			out = make(map[Dev]Stat)
		}
		out[dev] = stat
	}
	return out, nil
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
