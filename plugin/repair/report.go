package repair

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/hostfs"
	"github.com/nri-blkio/nri-blkio/plugin/health"
	"github.com/nri-blkio/nri-blkio/plugin/repair/filestate"
)

// Report is the state of the repair. It is stored in a file, which status reads.
type Report struct {
	At time.Time `json:"at"`
	// SinceBoot is as in health.Report.
	SinceBoot time.Duration `json:"sinceBoot,omitempty"`
	Mode      string        `json:"mode"` // ModeRepair, ModeObserve, ModeGated or ModeUnavailable
	Reason    string        `json:"reason,omitempty"`
	// PolicyRejected is as in health.Report.
	PolicyRejected string       `json:"policyRejected,omitempty"`
	Filesystems    []Filesystem `json:"filesystems"`
	// Files are misplaced or contested, at most 100: in turns one of each pod, the most
	// written first.
	Files []File `json:"files"`
	More  int    `json:"more,omitempty"`      // number of files that are left out
	Lost  uint64 `json:"lostBytes,omitempty"` // bytes that were not counted for lack of room
}

// The modes of a Report.
const (
	ModeRepair      = "repair"
	ModeObserve     = "observe"
	ModeGated       = "gated" // the kernel is not known to contain the corrections
	ModeUnavailable = "unavailable"
)

// Filesystem is a watched filesystem.
type Filesystem struct {
	Dev        string   `json:"dev"`
	Type       string   `json:"type"`
	Mountpoint string   `json:"mountpoint"`
	Disks      []string `json:"disks"` // device numbers
	// Hangs is true if a pass over files of the filesystem hangs.
	Hangs bool `json:"hangs,omitempty"`
}

// File is a file that another cgroup should own, or that is contested.
type File struct {
	Path       string      `json:"path,omitempty"` // "" if it is unknown
	Mountpoint string      `json:"mountpoint"`     // of its filesystem
	Inode      uint64      `json:"inode"`
	Subvolume  uint64      `json:"subvolume,omitempty"` // of btrfs
	Owner      NamedCgroup `json:"owner"`
	Writers    []Writer    `json:"writers"` // the one with most bytes first
	State      State       `json:"state"`
	Failure    string      `json:"failure,omitempty"`
	// Misplaced are the bytes that were charged to another cgroup than their writer's.
	Misplaced uint64    `json:"misplacedBytes"`
	Moves     int       `json:"moves,omitempty"` // how often the file was moved
	Since     time.Time `json:"since,omitzero"`  // when another cgroup began to be the desired owner
}

// Writer is a writer of a file.
type Writer struct {
	NamedCgroup
	Share float64 `json:"share"` // of the recent bytes, 0 to 1
}

const maxReported = 100

func (r *Repairer) newReport(now time.Time) *Report {
	out := &Report{At: now.UTC(), SinceBoot: hostfs.SinceBoot(), Filesystems: []Filesystem{}, Files: []File{}, Lost: r.metrics.lost.Load()}
	out.Mode, out.Reason = r.gate.mode()
	out.PolicyRejected = r.gate.rejection()
	hanging := r.passes.hanging(now)
	for dev, fs := range r.watch.filesystems {
		row := Filesystem{Dev: dev.String(), Type: fs.fstype, Mountpoint: fs.mountpoint}
		for _, d := range fs.disks {
			row.Disks = append(row.Disks, d.String())
		}
		row.Hangs = hanging[dev] != nil
		out.Filesystems = append(out.Filesystems, row)
	}
	slices.SortFunc(out.Filesystems, func(a, b Filesystem) int { return cmp.Compare(a.Mountpoint, b.Mountpoint) })
	var files []*file
	for _, f := range r.ledger.files {
		if f.state.State() != filestate.Right {
			files = append(files, f)
		}
	}
	slices.SortFunc(files, func(a, b *file) int { return cmp.Compare(b.total(), a.total()) })
	files = takeTurns(files, func(f **file) account { return (*f).history.account }) // none hides another's
	out.More = max(0, len(files)-maxReported)
	for _, f := range files[:len(files)-out.More] {
		out.Files = append(out.Files, r.reportFile(now, f))
	}
	return out
}

func (r *Repairer) reportFile(now time.Time, f *file) File {
	out := File{
		Path: f.path, Mountpoint: f.fs.mountpoint, Inode: f.Number, Subvolume: f.Root, Owner: r.domains.participant(f.owner.id),
		Writers: []Writer{}, State: reported(f.state.State()), Failure: f.repair.failure,
		Misplaced: f.history.misplaced, Moves: f.history.moves, Since: f.repair.since,
	}
	writers, total := f.writers(now)
	for _, p := range writers {
		out.Writers = append(out.Writers, Writer{r.domains.participant(p.writers[len(p.writers)-1]), p.recent.bytes / total})
	}
	return out
}

// publish updates the report and the metrics.
func (r *Repairer) publish(now time.Time) {
	r.metrics.census.Store(r.takeCensus())
	r.complainOfHanging(r.passes.hanging(now))
	if r.report != "" {
		r.problems.complain("report", "Writing the report for status failed", WriteReport(r.report, r.newReport(now)))
	}
}

// complainOfHanging logs the filesystems that passes hang on, and those where none hangs
// any more.
func (r *Repairer) complainOfHanging(now map[blkio.Dev]*filesystem) {
	before := r.passes.hung
	r.passes.hung = now
	of := func(dev blkio.Dev, fs *filesystem, err error) {
		r.problems.complain("hangs "+dev.String(), "Files of "+fs.mountpoint+" are not moved", err)
	}
	for dev, fs := range now {
		of(dev, fs, errHangs)
	}
	for dev, fs := range before {
		if now[dev] == nil {
			of(dev, fs, nil)
		}
	}
}

var errHangs = errors.New("a call to the filesystem hangs")

func (r *Repairer) removeReport() {
	if r.report != "" {
		_ = hostfs.Remove(r.report) // readers recognize an old report by its time
	}
}

// WriteReport replaces the file of a report.
func WriteReport(file string, r *Report) error { return hostfs.WriteJSON(file, r) }

// ReadReport reads the file of a report. It returns nil without an error if no process
// writes reports there now.
func ReadReport(file string) (*Report, error) {
	var r Report
	switch found, err := hostfs.ReadJSON(file, &r); {
	case err != nil:
		return nil, err
	case !found, r.Mode != ModeUnavailable && health.IsOld(r.At, r.SinceBoot):
		return nil, nil
	}
	return &r, nil
}
