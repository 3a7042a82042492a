package repair

import (
	"cmp"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

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

// counts has the counters. Its zero value is ready to use.
type counts struct {
	right, wrong, early, lost atomic.Uint64 // bytes
	moved, failed, cpu        atomic.Int64  // cpu: nanoseconds
	gaveUp                    atomic.Int64
	once                      sync.Once
	histogram                 prometheus.Histogram // see repairs
}

// metrics has the values that the Collector reports.
type metrics struct {
	counts
	census atomic.Pointer[census] // as of the last report
}

// repairs returns the histogram of the time until a file is moved to its writer.
func (c *counts) repairs() prometheus.Histogram {
	c.once.Do(func() {
		c.histogram = prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "nri_blkio_writeback_repair_seconds",
			Help:    "Time from the first write to a file of another owner until the writer owns it.",
			Buckets: []float64{.1, .25, .5, 1, 2, 5, 10, 30},
		})
	})
	return c.histogram
}

func (c *counts) countMove(took time.Duration) {
	c.moved.Add(1)
	c.repairs().Observe(took.Seconds())
}

var (
	watchedDesc = desc("watched_filesystems", "Filesystems on disks with a write limit.")
	filesDesc   = desc("files", "Files with a writer that does not own them, where a limit matters.", "state")
	bytesDesc   = desc("bytes_total", "Bytes that became dirty where a limit matters, charged to the writer or to another cgroup.", "charged")
	repairsDesc = desc("repairs_total", "Finished repairs of files.", "result")
	earlyDesc   = desc("early_bytes_total", "Upper bound of the bytes that passes wrote out early.")
	lostDesc    = desc("lost_bytes_total", "Bytes that became dirty in more files than the kernel tables can hold.")
	gatedDesc   = desc("repair_gated", "1 while no file is moved because the kernel is not known to contain the corrections that this needs.")
	cpuDesc     = desc("repair_cpu_seconds_total", "CPU time of passes.")
)

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("nri_blkio_writeback_"+name, help, labels, nil)
}

var _ prometheus.Collector = (*Repairer)(nil)

// Describe is the half of prometheus.Collector that names the metrics.
func (r *Repairer) Describe(out chan<- *prometheus.Desc) { prometheus.DescribeByCollect(r, out) }

// states are those with a time series: all but StateRight.
var states = [...]State{StateWaiting, StateRepairing, StateContested, StateFailed}

// census counts filesystems and files at one moment.
type census struct {
	watched int
	gated   float64 // 1 or 0
	files   [len(states)]int
}

func (r *Repairer) takeCensus() *census {
	out := census{watched: len(r.watch.filesystems)}
	if mode, _ := r.gate.mode(); mode == ModeGated {
		out.gated = 1
	}
	for _, f := range r.ledger.files {
		if i := slices.Index(states[:], reported(f.state.State())); i >= 0 {
			out.files[i]++
		}
	}
	return &out
}

// Collect is the half of prometheus.Collector that gives their values. Labels have
// few values, and none that a tenant wrote.
func (r *Repairer) Collect(out chan<- prometheus.Metric) {
	send := func(d *prometheus.Desc, kind prometheus.ValueType, v float64, label ...string) {
		out <- prometheus.MustNewConstMetric(d, kind, v, label...)
	}
	var now census
	if latest := r.metrics.census.Load(); latest != nil {
		now = *latest
	}
	send(gatedDesc, prometheus.GaugeValue, now.gated)
	send(watchedDesc, prometheus.GaugeValue, float64(now.watched))
	for i, s := range states {
		send(filesDesc, prometheus.GaugeValue, float64(now.files[i]), string(s))
	}
	c := &r.metrics
	send(bytesDesc, prometheus.CounterValue, float64(c.right.Load()), "writer")
	send(bytesDesc, prometheus.CounterValue, float64(c.wrong.Load()), "other")
	send(repairsDesc, prometheus.CounterValue, float64(c.moved.Load()), "moved")
	send(repairsDesc, prometheus.CounterValue, float64(c.failed.Load()+c.gaveUp.Load()), "failed")
	send(earlyDesc, prometheus.CounterValue, float64(c.early.Load()))
	send(lostDesc, prometheus.CounterValue, float64(c.lost.Load()))
	send(cpuDesc, prometheus.CounterValue, time.Duration(c.cpu.Load()).Seconds())
	c.repairs().Collect(out)
}
