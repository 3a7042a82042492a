package burst

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"
	"golang.org/x/sync/errgroup"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/blkio/hostfs"
	"github.com/nri-blkio/nri-blkio/plugin/recovery"
	"github.com/nri-blkio/nri-blkio/plugin/reminder"
)

// Demand has the limits with bursts of running containers and pods, without what they have used.
type Demand struct {
	Limits []Member // those of a cgroup are adjacent
	// Unlisted is true until the runtime has listed its containers: those of a former instance would count as gone.
	Unlisted bool
}

// Config is the configuration of a Keeper. All fields but Recovery are required.
type Config struct {
	Log     logrus.FieldLogger
	File    *File
	Cgroups *cgroupfs.Hierarchy
	Room    func() blkio.Limits // what the policy leaves for bursts on each disk
	Demand  func() Demand
	// Raise raises those limits of a pod for which isRaised is true, and lowers the others. It waits for other writers of the pod, for about a
	// second at most, and may be called for several pods at a time. The next step repeats a call that has failed.
	Raise    func(ctx context.Context, pod string, isRaised func(cgroup string, at blkio.Address) bool) error
	Recovery *recovery.Recovery
}

const (
	// stepEvery is the time between two calls of Book.Tick.
	stepEvery = time.Second
	// saveEvery is the time after which the book is saved without a change of the raised limits. The commands show what is saved.
	saveEvery = 2 * time.Second
	maxMoves  = 64 // pods that are written at a time
	endTries  = 2  // calls of Raise for a pod at the end of the process, each of which waits for other writers
)

// Keeper moves limits to their bursts and back. Report may be called at any time, Run once.
type Keeper struct {
	cfg     Config
	book    *Book           // nil before there may be a burst
	raised  map[string]bool // pods that may have a raised limit
	places  []Place
	saved   time.Duration
	problem reminder.Reminder
	report  atomic.Pointer[[]Sample]
}

// New returns a Keeper.
func New(cfg Config) *Keeper {
	k := &Keeper{cfg: cfg}
	k.report.Store(&[]Sample{})
	return k
}

// Report returns the limits with bursts as of the last step. They must not be changed.
func (k *Keeper) Report() []Sample { return *k.report.Load() }

// Run moves limits until ctx ends. Then it lowers all, because none would be lowered at the end of its credits.
func (k *Keeper) Run(ctx context.Context) {
	tick := time.NewTicker(stepEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			k.cfg.Recovery.Step("lower bursts", k.end)
			return
		case <-tick.C:
			k.cfg.Recovery.Step("move limits to their bursts", func() { k.step(ctx) })
		}
	}
}

func (k *Keeper) step(ctx context.Context) {
	room := k.cfg.Room()
	if k.book == nil && room.IsZero() {
		return
	}
	demand := k.cfg.Demand()
	if demand.Unlisted {
		return
	}
	if k.book == nil {
		var err error
		if k.book, err = k.cfg.File.Read(); err != nil {
			k.cfg.Log.WithError(err).Warn("The credits of bursts cannot be read: all owners have none")
		}
	}
	k.places = k.settle(room, demand.Limits)
	k.move(ctx, demand.Limits)
}

// settle returns the limits to raise. The book is saved before a limit is raised; if it cannot be, none is.
func (k *Keeper) settle(room blkio.Limits, limits []Member) []Place {
	now := k.cfg.File.Now()
	places := k.book.Tick(now, func(at blkio.Address) blkio.Amount { return room[at.Key] }, k.readUsed(limits))
	var err error
	if !slices.Equal(places, k.places) || len(limits) > 0 && now-k.saved >= saveEvery {
		if err, k.saved = k.cfg.File.Write(k.book), now; err != nil {
			k.book.Lower()
			places = nil
		}
		if k.problem.Due(time.Now(), err) {
			k.cfg.Log.WithError(err).Warn("The credits of bursts cannot be saved: no limit is raised")
		}
	}
	report := slices.Clone(k.book.last)
	k.report.Store(&report)
	return places
}

// move puts the raised limits into force. One pod does not wait for another, whose disk may hang.
func (k *Keeper) move(ctx context.Context, limits []Member) {
	places, pods := map[Place]bool{}, map[string]bool{}
	for _, p := range k.places {
		places[p] = true
	}
	for pod := range k.raised {
		pods[pod] = false
	}
	for i := range limits {
		if places[limits[i].place()] {
			pods[limits[i].Pod] = true
		}
	}
	k.raised = map[string]bool{}
	var mu sync.Mutex // guards k.raised
	var moves errgroup.Group
	moves.SetLimit(maxMoves)
	for pod, isRaised := range pods {
		moves.Go(func() error {
			var err error
			returned := k.cfg.Recovery.Step("move the limits of a pod", func() { // a panic in this goroutine would end the process
				err = k.cfg.Raise(ctx, pod, func(cgroup string, at blkio.Address) bool { return places[Place{cgroup, at}] })
			})
			mu.Lock()
			defer mu.Unlock()
			if isRaised || err != nil || !returned {
				k.raised[pod] = true
			}
			return nil
		})
	}
	_ = moves.Wait() // what has failed is in k.raised
}

// end lowers all limits, and saves what was used until then.
func (k *Keeper) end() {
	if k.book == nil {
		return
	}
	k.places = nil
	for range endTries {
		if k.move(context.Background(), nil); len(k.raised) == 0 {
			break
		}
	}
	if demand := k.cfg.Demand(); !demand.Unlisted {
		k.settle(blkio.Limits{}, demand.Limits)
	}
	if len(k.raised) == 0 { // what is still raised is charged as if it were used
		k.book.Lower()
	}
	if err := k.cfg.File.Write(k.book); err != nil {
		k.cfg.Log.WithError(err).Warn("The credits of bursts cannot be saved")
	}
}

// readUsed returns the limits with what their cgroups have used. One that cannot be read is left out, as one that is gone.
func (k *Keeper) readUsed(limits []Member) (out []Member) {
	var stats map[blkio.Dev]blkio.Stat
	var err error
	for i, m := range limits {
		if i == 0 || m.Cgroup != limits[i-1].Cgroup {
			stats, err = k.cfg.Cgroups.Cgroup(m.Cgroup).ReadIOStat()
		}
		if err == nil {
			m.Used = stats[m.Dev].Limited(m.Key)
			out = append(out, m)
		}
	}
	return out
}

var limitsDesc = prometheus.NewDesc("nri_blkio_burst_limits", "Limits of running containers and pods that have a burst, by whether it is in force.", []string{"state"}, nil)

// Describe is the half of prometheus.Collector that names the metrics.
func (k *Keeper) Describe(out chan<- *prometheus.Desc) { prometheus.DescribeByCollect(k, out) }

// Collect implements prometheus.Collector.
func (k *Keeper) Collect(out chan<- prometheus.Metric) {
	states := map[string]float64{"raised": 0, "lowered": 0, "no_credits": 0}
	for _, s := range k.Report() {
		switch {
		case s.Raised:
			states["raised"]++
		case s.Credits < s.above():
			states["no_credits"]++
		default:
			states["lowered"]++
		}
	}
	for state, count := range states {
		out <- prometheus.MustNewConstMetric(limitsDesc, prometheus.GaugeValue, count, state)
	}
}

// File is where a book is kept.
type File struct {
	Path string
	Boot string // the ID of the boot; "" if it is unknown
	// Now returns the time of the monotonic clock, which all processes of a boot share.
	Now func() time.Duration
}

// saved is a Book in a file.
type saved struct {
	Boot     string        `json:"boot"`
	At       time.Duration `json:"at"`
	Accounts []credits     `json:"accounts"`
	Limits   []Sample      `json:"limits"`
}

// credits has the credits of an account, in bytes or operations. They are negative for a debt.
type credits struct {
	Account
	Credits float64 `json:"credits"`
}

// Write replaces the book in the file.
func (f *File) Write(b *Book) error {
	s := saved{Boot: f.Boot, At: b.at, Limits: b.last}
	for a, sum := range b.credits {
		s.Accounts = append(s.Accounts, credits{a, sum})
	}
	slices.SortFunc(s.Accounts, func(x, y credits) int { return x.compare(y.Account) })
	return hostfs.WriteJSON(f.Path, &s)
}

// Read returns the book in the file. It is empty without one, and if the file is of another boot: the cgroups and the clock are others. It is
// never nil.
func (f *File) Read() (*Book, error) {
	var s saved
	found, err := hostfs.ReadJSON(f.Path, &s)
	b := &Book{credits: map[Account]float64{}}
	if !found || s.Boot != f.Boot || s.Boot == "" || s.At > f.Now() {
		return b, err
	}
	for _, c := range s.Accounts {
		if c.Key < blkio.NumLimits {
			b.credits[c.Account] += c.Credits
		}
	}
	b.at, b.last = s.At, slices.DeleteFunc(s.Limits, func(m Sample) bool { return m.Key >= blkio.NumLimits })
	return b, err
}

// Limits returns the limits with bursts as of the last call of Tick. They must not be changed.
func (b *Book) Limits() []Sample { return b.last }

// Lower notes that no limit is raised any more.
func (b *Book) Lower() {
	b.last = slices.Clone(b.last)
	for i := range b.last {
		b.last[i].Raised = false
	}
}
