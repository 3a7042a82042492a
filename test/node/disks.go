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
}

// spareDisks are in the order that the node sees them in, from vdb.
var spareDisks = []disk{
	{"vdb", []string{"mke2fs", "-q", "-F", "-t", "ext4", "-E", "lazy_itable_init=0,lazy_journal_init=0,nodiscard"}},
	{"vdc", []string{
		"mke2fs", "-q", "-F", "-t", "ext4", "-E",
		fmt.Sprintf("lazy_itable_init=0,lazy_journal_init=0,nodiscard,offset=%d", partitionStart),
	}},
	{"vdd", []string{"mkfs.xfs", "-q", "-f", "-K"}},
	{"vde", []string{"mkfs.btrfs", "-q", "-f", "-K"}},
	{"vdf", nil},
	{"vdg", nil},
	{"vdh", nil},
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
