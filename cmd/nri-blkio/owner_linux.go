package main

import (
	"errors"
	"fmt"
	"os"
	"path"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/blkio/writeback"
	"github.com/nri-blkio/nri-blkio/plugin/inspect"
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
		Args: usageArgs(cobra.MinimumNArgs(1)),
		RunE: func(_ *cobra.Command, args []string) error { return a.owner(args, o.json()) },
	}
	o.add(cmd)
	return cmd
}

// ownerRow is one file. Of what is not known the field is empty.
type ownerRow struct {
	Path      string `json:"path"`
	State     string `json:"state"`
	CgroupID  uint64 `json:"cgroupID,omitempty"`
	Cgroup    string `json:"cgroup,omitempty"` // where it is, below the root
	Namespace string `json:"namespace,omitempty"`
	Pod       string `json:"pod,omitempty"`
	Container string `json:"container,omitempty"` // "" for the pod's own cgroup
	Foreign   int    `json:"foreign"`             // of 16 rounds of writeback
}

// The states of an owner.
const (
	ownerLive  = "live"  // its cgroup is there
	ownerEnded = "ended" // a container of which a record has the end
	ownerGone  = "gone"
	ownerNone  = "none"
)

func (a *app) owner(paths []string, asJSON bool) error {
	tree, err := a.openCgroups(a.opts.cgroupDir())
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
	rows := make([]ownerRow, 0, len(paths))
	for _, p := range paths {
		o, err := a.ownerOf(reader, p)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		found, rows = append(found, o), append(rows, ownerRow{Path: p})
	}
	// The owners are read first: a cgroup that is made in between is none of them.
	cgroups, err := newCgroupNames(tree)
	errs = append(errs, err)
	for i := range rows {
		cgroups.fill(&rows[i], found[i])
	}
	if err := a.printOwners(rows, asJSON); err != nil {
		return err
	}
	return a.reported(errs)
}

// reported prints the errors, a line each, and returns what has their exit status alone.
func (a *app) reported(errs []error) error {
	err := errors.Join(errs...)
	if err == nil {
		return nil
	}
	notes(a.stderr, "nri-blkio", errorLines(err))
	return &exitError{status: statusOf(err)}
}

// ownerOf opens a file just to name it: no permission to read is asked for, no
// lease of another process is broken, no device or pipe is touched.
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

func (a *app) printOwners(rows []ownerRow, asJSON bool) error {
	if asJSON {
		return printJSON(a.stdout, map[string]any{"files": rows})
	}
	if len(rows) == 0 {
		return nil
	}
	t := newTable(a.stdout, "FILE", "OWNER", "CGROUP", "FOREIGN")
	for _, r := range rows {
		t.row(r.Path, r.owner(), r.Cgroup, fmt.Sprint(r.Foreign))
	}
	return t.flush()
}

func (r *ownerRow) owner() string {
	switch {
	case r.Pod == "" && r.State == ownerLive:
		return ""
	case r.Pod == "":
		return r.State
	}
	name := r.Namespace + "/" + r.Pod
	if r.Container != "" {
		name += " " + r.Container
	}
	if r.State != ownerLive {
		name += " (" + r.State + ")"
	}
	return name
}

// cgroupNames tells what the numbers of cgroups are of.
type cgroupNames struct {
	paths   map[uint64]string
	records map[string]inspect.Recorded // by path
	ended   map[uint64]inspect.Ended
}

// newCgroupNames reads what there is. An error is of a part of that.
func newCgroupNames(tree *cgroupfs.Hierarchy) (*cgroupNames, error) {
	paths, err := tree.IDs()
	records, readErr := inspect.Records(tree, inspect.Filter{})
	c := &cgroupNames{paths: paths, records: map[string]inspect.Recorded{}, ended: inspect.EndedContainers(records)}
	for _, r := range records {
		c.records[r.Cgroup.Path()] = r
	}
	return c, errors.Join(err, readErr)
}

func (c *cgroupNames) fill(row *ownerRow, o writeback.Owner) {
	row.CgroupID, row.Foreign = o.Cgroup, o.Foreign()
	dir, live := c.paths[o.Cgroup]
	ended, known := c.ended[o.Cgroup]
	switch {
	case o.Cgroup == 0:
		row.State = ownerNone
	case live:
		row.State, row.Cgroup = ownerLive, dir
		row.name(c.above(dir))
	case known:
		row.State = ownerEnded
		row.Namespace, row.Pod, row.Container = ended.Pod.Namespace, ended.Pod.Pod, ended.Exit.Container
	default:
		row.State = ownerGone
	}
}

// above finds the record of a cgroup, or of the nearest one above: runtimes and
// containers make cgroups of their own.
func (c *cgroupNames) above(dir string) (inspect.Recorded, bool) {
	for {
		if r, ok := c.records[dir]; ok {
			return r, true
		}
		i := strings.LastIndexByte(dir, '/')
		if i < 0 {
			return inspect.Recorded{}, false
		}
		dir = dir[:i]
	}
}

func (r *ownerRow) name(of inspect.Recorded, known bool) {
	if known {
		r.Namespace, r.Pod, r.Container = of.Record.Namespace, of.Record.Pod, of.Record.Container
	}
}
