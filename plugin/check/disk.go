package check

import (
	"fmt"
	"strings"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/diskmodel"
)

// Disk describes io.cost on a physical disk of a node, as run would decide.
type Disk struct {
	Name    string
	Stacked bool // io.cost works on the disks below
	// Model is the model in force, or the one that would be; nil if it is unknown. Origin is its source. Guess
	// is true for the kernel's model, which is not about this disk.
	Model  *blkio.CostModel
	Origin string
	Guess  bool
	// Random are the rates of random operations, nil if they are unknown.
	Random *diskmodel.Random
	// State is "on", "on demand", "no" or "unknown". Reason is why run does not enable io.cost.
	State  string
	Reason string
}

// most returns the most of a key that the disk does with any block size and any order of blocks;
// 0 if it is unknown.
func (d *Disk) most(k blkio.Key) float64 {
	if d.Model == nil || d.Guess {
		return 0
	}
	m, measured := d.Model, 0.0
	bps, sequential, random := m.Wbps, m.WSeqIOPS, m.WRandIOPS
	if k.IsRead() {
		bps, sequential, random = m.Rbps, m.RSeqIOPS, m.RRandIOPS
	}
	if d.Random != nil { // the model of a measured disk can be lower than the measurement
		rates := d.Random.Writes
		if k.IsRead() {
			rates = d.Random.Reads
		}
		if measured = rates.IOPS(smallest); k.IsBytes() {
			measured = rates.IOPS(largest) * largest
		}
	}
	if k.IsBytes() {
		return max(float64(bps), measured)
	}
	return max(float64(sequential), float64(random), measured)
}

// The block sizes that bound the rates of a disk, in bytes.
const (
	smallest = 4 << 10
	largest  = 1 << 20
)

// capacity has the rates that the physical disks below a disk reach together.
type capacity struct {
	rate  float64  // of a key, per second
	disks []string // their names
	from  string   // the origins of their models
}

// capacityOf returns the most of a key that a disk can do. ok is false if that is unknown. Blocks
// of a disk that is made of others may all go to one of them, so the sum is an upper bound.
func (n *Node) capacityOf(dev blkio.Dev, k blkio.Key) (out capacity, ok bool) {
	if n.Storage == nil || dev.IsUnknown() {
		return out, false
	}
	physical, err := n.Storage.Physical(dev)
	if err != nil || len(physical) == 0 {
		return out, false
	}
	var origins []string
	for _, p := range physical {
		d, known := n.Disks[p.Dev]
		most := d.most(k)
		if !known || most == 0 {
			return out, false
		}
		out.rate += most
		origins = append(origins, d.Origin)
	}
	out.disks, out.from = blkio.DiskNames(physical), strings.Join(unique(origins), ", ")
	return out, true
}

// text returns "its model (policy) says 1500 operations/s of 4K" for a disk, or names the disks below it.
func (c *capacity) text(k blkio.Key, disk string) string {
	subject, verb := "its model", "says"
	switch {
	case len(c.disks) > 1:
		subject, verb = "the models of "+strings.Join(c.disks, ", "), "say"
	case c.disks[0] != disk:
		subject = "the model of " + c.disks[0]
	}
	rate := fmt.Sprintf("%.0f operations/s of 4K", c.rate)
	if k.IsBytes() {
		rate = bytesText(c.rate) + "/s"
	}
	return fmt.Sprintf("%s (%s) %s %s", subject, c.from, verb, rate)
}

// bytesText formats bytes with three digits in a binary unit, as annotations have them.
func bytesText(n float64) string {
	units := []string{"", "Ki", "Mi", "Gi", "Ti"}
	i := 0
	for ; n >= 1024 && i < len(units)-1; i++ {
		n /= 1024
	}
	return fmt.Sprintf("%.3g%s", n, units[i])
}
