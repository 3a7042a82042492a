package repair

import (
	"hash/maphash"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/plugin/record"
)

// reading is what a record said. Each is looked at every second or so, and hardly one
// has changed: to decode it takes 15 us and leaves 5 KB of garbage, so that is done
// when its text is another one.
type reading struct {
	sum uint64 // of the text
	Who
	limits   []blkio.DevLimits // on writes; those of a cleared record are none
	observed bool
	exits    []record.Exit
}

// read returns what a record says, or nil if it counts for nothing.
func (d *domains) read(c cgroupfs.Cgroup, a cgroupfs.Attribute) (*reading, error) {
	if record.IsForeign(a.Owner) {
		return newReading(ownedByItself(c)), nil
	}
	sum := maphash.Bytes(d.seed, a.Value)
	if known := d.readings[c.Path()]; known != nil && known.sum == sum {
		return known, nil
	}
	record, err := record.ParseAttribute(a)
	if err != nil || record == nil {
		return nil, err
	}
	r := newReading(record)
	r.sum = sum
	return r, nil
}

func newReading(r *record.Record) *reading {
	out := &reading{
		Who: Who{r.Namespace, r.Pod, r.Container}, observed: r.Observed,
		exits: r.Exits,
	}
	if !r.Cleared {
		out.limits = writeLimits(r.DevLimits())
	}
	return out
}

// ownedByItself stands for the record of a container that may write it itself, and
// so it says nothing: its io.max, which it may not write, does.
func ownedByItself(c cgroupfs.Cgroup) *record.Record {
	out := &record.Record{Kind: record.KindContainer}
	limits, err := c.ReadIOMax()
	if err != nil {
		return out
	}
	for dev, of := range limits {
		for k, rate := range of {
			if rate != blkio.Unset {
				out.Limits = append(out.Limits, record.Limit{Dev: dev.String(), Key: blkio.Key(k).String(), Rate: rate})
			}
		}
	}
	return out
}

// writeLimits are those that concern writes, without those that are no limits.
func writeLimits(all map[blkio.Dev]blkio.Limits) []blkio.DevLimits {
	var out []blkio.DevLimits
	for dev, l := range all {
		if w := writes(l); !w.IsZero() {
			out = append(out, blkio.DevLimits{Dev: dev, Limits: w})
		}
	}
	return out
}

func writes(l blkio.Limits) blkio.Limits {
	var out blkio.Limits
	for _, k := range []blkio.Key{blkio.Wbps, blkio.Wiops} {
		if l[k] != blkio.Max {
			out[k] = l[k]
		}
	}
	return out
}
