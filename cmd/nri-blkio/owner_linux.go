package main

import (
	"bytes"
	"errors"
	"os"
	"path"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/nri-blkio/nri-blkio/blkio/writeback"
	"github.com/nri-blkio/nri-blkio/plugin/report"
	"github.com/nri-blkio/nri-blkio/plugin/why"
)

const ownerLong = `Show the container whose limit applies to buffered writes to a file.

The kernel assigns each file to one cgroup's writeback: that cgroup is charged for
buffered writes to the file, and its io.max throttles them. OWNER is the container
of that cgroup, if a record names it, or
  none   no write since the file was loaded into memory
  gone   the cgroup was removed, and no record names its container
  -      a cgroup outside pods with limits; "." is the root cgroup
FOREIGN is how many of the last 16 rounds of writeback found mostly pages that are
charged to another cgroup. From 9 on the kernel moves the file to that cgroup.

It works with any file of any node, whether the plugin runs or not. Only BPF
programs can read the owner, so it requires root, or CAP_BPF and CAP_PERFMON, with
CAP_DAC_READ_SEARCH for files of other users; and a kernel with BTF. The file is not
opened for reading, and nothing is written.`

func (a *app) ownerCommand() *cobra.Command {
	var o output
	cmd := &cobra.Command{
		Use:   "owner FILE...",
		Short: "Name the container whose limit applies to writes to a file",
		Long:  ownerLong,
		Example: `  nri-blkio owner /var/lib/kubelet/pods/*/volumes/*/data/file
  nri-blkio owner -o json /mnt/data/db.wal`,
		Args: operands(1, 1000, "name a file"),
		RunE: func(_ *cobra.Command, args []string) error { return a.owner(args, o) },
	}
	o.add(cmd)
	return cmd
}

func (a *app) owner(paths []string, o output) error {
	tree, err := a.cgroups()
	if err != nil {
		return err
	}
	defer tree.Close()
	reader, err := writeback.NewOwnerReader()
	if err != nil {
		return err
	}
	defer reader.Close()
	var errs []error
	found := make([]writeback.Owner, 0, len(paths))
	read := make([]string, 0, len(paths))
	for _, p := range paths {
		owner, err := a.ownerOf(reader, p)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		found, read = append(found, owner), append(read, p)
	}
	rows, err := why.FileOwners(tree, read, found)
	errs = append(errs, err)
	if err := a.print(o, map[string]any{"files": rows}, func(out *bytes.Buffer) { report.WriteOwners(out, rows) }); err != nil {
		return err
	}
	return errors.Join(errs...)
}

// ownerOf reads the owner of a file. O_PATH needs no permission to read the file, breaks no lease of
// another process, and does not open a device or a pipe.
func (a *app) ownerOf(reader *writeback.OwnerReader, name string) (writeback.Owner, error) {
	if path.IsAbs(name) {
		name = a.opts.host(name)
	}
	f, err := os.OpenFile(name, unix.O_PATH, 0)
	if err != nil {
		return writeback.Owner{}, named(err)
	}
	defer f.Close()
	return reader.Owner(f)
}
