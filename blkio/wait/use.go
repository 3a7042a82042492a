package wait

import (
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
)

// Use is a reading of the control files of a cgroup that count its I/O.
type Use struct {
	Time     time.Time
	Stat     map[blkio.Dev]blkio.Stat
	Limits   map[blkio.Dev]blkio.Limits // in force; without those of the cgroups above
	Pressure *blkio.Pressure            // nil: the kernel has none
}

// ReadUse reads a cgroup. What the kernel, or the cgroup's controllers, do not have is left out.
func ReadUse(c cgroupfs.Cgroup) (Use, error) {
	u := Use{Time: time.Now()}
	var errs [3]error
	var pressure blkio.Pressure
	u.Stat, errs[0] = c.ReadIOStat()
	u.Limits, errs[1] = c.ReadIOMax()
	if pressure, errs[2] = c.ReadIOPressure(); errs[2] == nil {
		u.Pressure = &pressure
	}
	for _, err := range errs {
		if err != nil && !errors.Is(err, blkio.ErrNotSupported) {
			return Use{}, err
		}
	}
	return u, nil
}

// DiskUse is what a cgroup and those below it did on a disk in some time.
type DiskUse struct {
	Dev    blkio.Dev
	Rates  [blkio.NumLimits]float64 // per second, by key
	Limits blkio.Limits
	// CostWait is the time per second that threads waited for their share by io.cost. With several threads it can be more
	// than 1. It is nil if the kernel does not count it.
	CostWait *float64
}

// OfLimit returns the rate of a key as a part of its limit. It returns false without a limit.
func (d *DiskUse) OfLimit(k blkio.Key) (float64, bool) {
	limit := d.Limits[k]
	if limit == blkio.Unset || limit == blkio.Max {
		return 0, false
	}
	return d.Rates[k] / float64(limit), true
}

// Fullest returns the key of which the largest part of the limit is used, with that part. The keys are those of reads or of writes, or all
// if op is None. It returns false without a limit.
func (d *DiskUse) Fullest(op Op) (key blkio.Key, part float64, ok bool) {
	for k := range blkio.NumLimits {
		if op != None && k.IsRead() != (op == Read) {
			continue
		}
		if p, limited := d.OfLimit(k); limited && (!ok || p > part) {
			key, part, ok = k, p, true
		}
	}
	return key, part, ok
}

// Activity is what a cgroup did between two readings.
type Activity struct {
	Duration time.Duration
	Disks    []DiskUse // with I/O or a limit, by device number
	// Some and Full are the parts of the time in which some threads, or all that could run, waited for I/O. They are nil
	// if the kernel has no pressure stall information.
	Some, Full *float64
}

// UseBetween compares two readings of a cgroup. It is a function of its arguments. A counter that went back, as when a disk
// was replaced, counts from zero.
func UseBetween(earlier, later Use) Activity {
	out := Activity{Duration: later.Time.Sub(earlier.Time)}
	seconds := out.Duration.Seconds()
	if seconds <= 0 {
		return out
	}
	if a, b := earlier.Pressure, later.Pressure; a != nil && b != nil {
		some, full := (b.Some-a.Some).Seconds()/seconds, (b.Full-a.Full).Seconds()/seconds
		out.Some, out.Full = &some, &full
	}
	devs := slices.SortedFunc(maps.Keys(later.Stat), blkio.Dev.Compare)
	for dev := range later.Limits {
		if i, found := slices.BinarySearchFunc(devs, dev, blkio.Dev.Compare); !found {
			devs = slices.Insert(devs, i, dev)
		}
	}
	for _, dev := range devs {
		a, b := earlier.Stat[dev], later.Stat[dev]
		rate := func(earlier, later uint64) float64 {
			if later < earlier {
				earlier = 0
			}
			return float64(later-earlier) / seconds
		}
		d := DiskUse{Dev: dev, Limits: later.Limits[dev]}
		d.Rates[blkio.Rbps], d.Rates[blkio.Wbps] = rate(a.Rbytes, b.Rbytes), rate(a.Wbytes, b.Wbytes)
		d.Rates[blkio.Riops], d.Rates[blkio.Wiops] = rate(a.Rios, b.Rios), rate(a.Wios, b.Wios)
		if b.HasCostWait {
			waited := rate(a.CostWait, b.CostWait) / float64(time.Second/time.Microsecond)
			d.CostWait = &waited
		}
		if d.Rates != ([blkio.NumLimits]float64{}) || !d.Limits.IsZero() || d.CostWait != nil && *d.CostWait > 0 {
			out.Disks = append(out.Disks, d)
		}
	}
	return out
}
