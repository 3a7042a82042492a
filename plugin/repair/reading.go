package repair

import (
	"hash/maphash"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/plugin/record"
	"github.com/nri-blkio/nri-blkio/policy"
)

// reading is a decoded record. Records are read every second or so, and rarely change. Decoding takes 15 us and
// 5 KB of garbage, so a record is decoded only if its text has changed.
type reading struct {
	sum uint64 // of the text
	ContainerName
	limits   policy.Settings // on writes; a cleared record has none
	observed bool
	exits    []record.Exit
}

// read returns the reading of a record, or nil if there is no valid record.
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
		ContainerName: ContainerName{r.Namespace, r.Pod, r.Container}, observed: r.Observed,
		exits: r.Exits,
	}
	if !r.Cleared {
		out.limits = r.Settings.WriteLimits()
	}
	return out
}

// ownedByItself returns a record made from io.max, for a container that may write its own
// record: it may not write io.max.
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
