package inspect

import (
	"context"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/wait"
)

// MeasureUse sets Used of the limits in force. It compares two readings of their cgroups.
func (h *Host) MeasureUse(ctx context.Context, values []Value, duration time.Duration) {
	before := h.readUse(values)
	if len(before) == 0 {
		return
	}
	select {
	case <-time.After(duration):
	case <-ctx.Done():
	}
	activities := map[string]wait.Activity{}
	for cgroup, after := range h.readUse(values) {
		if first, ok := before[cgroup]; ok {
			activities[cgroup] = wait.UseBetween(first, after)
		}
	}
	for i := range values {
		v := &values[i]
		key, isLimit := blkio.ParseKey(blkio.IOMax, v.Key)
		for _, d := range activities[v.Cgroup].Disks {
			if part, inForce := d.OfLimit(key); isLimit && inForce && d.Dev.String() == v.Dev {
				v.Used = &part
			}
		}
	}
}

// readUse reads the cgroups with limits. One that cannot be read, as it was removed, is left out.
func (h *Host) readUse(values []Value) map[string]wait.Use {
	out := map[string]wait.Use{}
	for i := range values {
		v := &values[i]
		if _, isRead := out[v.Cgroup]; isRead || v.Dev == "" {
			continue
		}
		if use, err := wait.ReadUse(h.Cgroups.Cgroup(v.Cgroup)); err == nil {
			out[v.Cgroup] = use
		}
	}
	return out
}
