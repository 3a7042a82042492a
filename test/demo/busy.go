package main

import (
	"fmt"

	"github.com/prometheus/procfs"
)

// mostByOthers is the part of the machine's processor time that other programs may use during the demo. With more, an emulated
// node is slower than its disks, and neither limits nor weights decide what is measured.
const mostByOthers = 0.15

// usage is processor time of this machine since it booted, in seconds.
type usage struct {
	all  float64 // of all processors, busy or not
	busy float64 // what programs used, and what a hypervisor took
	node float64 // the part of busy that the demo's node used
}

// usageOf reads the usage. cpuTime is [node.Node.CPUTime].
func usageOf(cpuTime func() (float64, error)) (usage, error) {
	proc, err := procfs.NewDefaultFS()
	if err != nil {
		return usage{}, err
	}
	stat, err := proc.Stat()
	if err != nil {
		return usage{}, err
	}
	c := stat.CPUTotal
	busy := c.User + c.Nice + c.System + c.IRQ + c.SoftIRQ + c.Steal
	used, err := cpuTime()
	return usage{all: busy + c.Idle + c.Iowait, busy: busy, node: used}, err
}

// byOthers returns the part of the processor time since an earlier usage that was not the node's, 0 to 1.
func (u usage) byOthers(since usage) float64 {
	all := u.all - since.all
	if all <= 0 {
		return 0
	}
	return max(0, (u.busy-since.busy)-(u.node-since.node)) / all
}

// busyText says what the use of the machine by other programs means for the demo's figures. It is empty if there was little.
func busyText(byOthers float64) string {
	if byOthers <= mostByOthers {
		return ""
	}
	return fmt.Sprintf("other programs used %.0f %% of this machine's processor time, which the emulated node lacked: "+
		"its rates are not those of its disks. Repeat the demo when the machine is idle", 100*byOthers)
}
