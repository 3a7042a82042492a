package repair

import (
	"hash/maphash"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/plugin/record"
	"github.com/nri-blkio/nri-blkio/policy"
)

// reading is what a record said. Each is looked at every second or so, and hardly one
// has changed: to decode it takes 15 us and leaves 5 KB of garbage, so that is done
// when its text is another one.
type reading struct {
	sum uint64 // of the text
	Who
	limits   policy.Settings // on writes; those of a cleared record are none
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
		out.limits = r.Settings.WriteLimits()
	}
	return out
}

// ownedByItself stands for the record of a container that may write it itself, and
// so it says nothing: its io.max, which it may not write, does.
func ownedByItself(c cgroupfs.Cgroup) *record.Record {
	out := &record.Record{Kind: record.KindContainer}
	values, err := c.ReadValues(blkio.IOMax)
	if err != nil {
		return out
	}
	for _, v := range values.Sorted() {
		out.Settings = append(out.Settings, policy.Setting{Value: v})
	}
	return out
}
