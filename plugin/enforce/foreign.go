package enforce

import (
	"slices"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/record"
	"github.com/nri-blkio/nri-blkio/policy"
)

// Storage drivers such as ceph-csi set limits on the pod's cgroup as well, before a container exists. The kernel has one value
// for each disk and key, so the two can meet. The lower value holds: it is within what both ask for. A value that replaces
// one of the plugin is replaced at the next comparison: once in each pass, and not at each write of the other program.

// foreign compares the desired settings of a pod's cgroup with values of other programs. It takes those that stay out of the
// desired ones, and reports them.
func (c *change) foreign(old *record.Record, actual blkio.Values) {
	if c.Target.Container != "" || len(c.Want) == 0 || c.record.Observed || c.found.unread != nil || c.Unreadable != nil {
		return // without a record, values of this program look like those of another
	}
	stay := c.staying(old, actual)
	for at := range actual {
		_, isDesired := c.Want.Get(at)
		if v := actual.At(at); at.Key.IsRate() && v.IsLimit() && !isDesired && !isRecorded(old, at) {
			stay = append(stay, policy.Setting{Value: v})
		}
	}
	if len(stay) == 0 || c.isForeign() { // the record of such a pod is not trusted
		return
	}
	c.Foreign = policy.NewSettings(stay...)
	c.Want, c.record.Settings = c.Want.Without(c.Foreign), c.record.Settings.Without(c.Foreign)
	c.reportForeign()
}

// staying returns the values of other programs that stay although others are desired.
func (c *change) staying(old *record.Record, actual blkio.Values) (stay []policy.Setting) {
	for _, s := range c.Want {
		now := actual.At(s.Address)
		if s.Key.IsRate() && now.IsLimit() && now.Amount < s.Amount && !isRecorded(old, s.Address) {
			stay = append(stay, policy.Setting{Value: now})
		}
	}
	return stay
}

// isRecorded reports whether this program wrote a value at an address, by a record.
func isRecorded(r *record.Record, at blkio.Address) bool {
	_, found := r.Settings.Get(at)
	return found && !r.Observed
}

// maxForeign bounds the values of other programs in a record.
const maxForeign = 8

// reportForeign adds the values that stay to the warnings of the record.
func (c *change) reportForeign() {
	c.found.isCurrent = false
	c.record.Warnings = slices.Clip(c.record.Warnings)
	for i, s := range c.Foreign {
		if i == maxForeign {
			c.record.Warnings = append(c.record.Warnings, "and more limits of other programs")
			return
		}
		c.record.Warnings = append(c.record.Warnings, "io.max of the pod has "+s.OnDisk(c.record.Disks)+" of another program, which stays")
	}
}
