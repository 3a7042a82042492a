package node

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// spareDiskSize is that of each disk beside the root.
const spareDiskSize = 4 << 30

// partitionStart is where sfdisk puts a first partition, in bytes.
const partitionStart = 1 << 20

// disk is a spare disk: its name in the node, and the program and arguments that
// format the file on the host, which is quicker than in an emulated guest and
// leaves no lazy initialisation to write later.
type disk struct {
	name   string
	format []string
	// throttle is the bound that QEMU sets for the disk; "" for none.
	throttle string
}

// slow is less I/O than containers on an emulated node can cause, just as 100 MB/s are more than
// many disks of real nodes can do. On the other disks the CPU bounds the I/O of a neighbour.
const slow = ",throttling.iops-total=1500,throttling.bps-total=8388608"

// shared is the bound of the disk that containers share by weights: operations bound it as often as bytes do.
const shared = ",throttling.iops-total=1500,throttling.bps-total=62914560"

// spareDisks are in the order that the node sees them in, from vdb.
var spareDisks = []disk{
	{name: "vdb", format: ext4(0)},
	{name: "vdc", format: ext4(partitionStart)},
	{name: "vdd", format: []string{"mkfs.xfs", "-q", "-f", "-K"}},
	{name: "vde", format: []string{"mkfs.btrfs", "-q", "-f", "-K"}},
	{name: "vdf"},
	{name: "vdg"},
	{name: "vdh"},
	{name: "vdi", format: ext4(0), throttle: slow},
	{name: "vdj", format: ext4(0), throttle: shared},
}

// ext4 makes a filesystem that begins at an offset in bytes.
func ext4(offset int) []string {
	return []string{
		"mke2fs", "-q", "-F", "-t", "ext4", "-E",
		fmt.Sprintf("lazy_itable_init=0,lazy_journal_init=0,nodiscard,offset=%d", offset),
	}
}

// nvmeDisk is the file of a disk that two controllers of one NVMe subsystem share: the
// kernel makes it one disk, and hides the paths to it.
const nvmeDisk = "nvme0n1"

// makeDisks makes the sparse disk files in dir.
func makeDisks(ctx context.Context, dir string) error {
	for _, d := range append(spareDisks, disk{name: nvmeDisk}) {
		if err := makeDisk(ctx, d, filepath.Join(dir, d.name)); err != nil {
			return fmt.Errorf("make disk %s: %w", d.name, err)
		}
	}
	return nil
}

func makeDisk(ctx context.Context, d disk, file string) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Truncate(spareDiskSize); err != nil {
		return err
	}
	if d.format == nil {
		return nil
	}
	args := append(append([]string{}, d.format...), file)
	if d.name == "vdc" {
		cmd := exec.CommandContext(ctx, "sfdisk", "-q", file)
		cmd.Stdin = strings.NewReader(fmt.Sprintf("label: gpt\nstart=%d, type=linux\n", partitionStart/512))
		if err := runQuietly(cmd); err != nil {
			return err
		}
		// Shorter than the partition: the end of the disk holds GPT's copy.
		args = append(args, fmt.Sprintf("%dK", (spareDiskSize-2*partitionStart)>>10))
	}
	return runQuietly(exec.CommandContext(ctx, args[0], args[1:]...))
}
