// Package recorder keeps what happens to the pods of the node as events, and writes them for the cluster part.
//
// An event that occurs again is counted. The same events are in memory and in the directory of package podevent, and a
// process takes over those of the one before. Noting an event waits for nothing: it changes the memory, and the files follow.
//
// Each pod has room for some events, and more of them displace its own oldest ones. Where all pods together have too many,
// the pod with the most loses its oldest one.
package recorder

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"

	"github.com/nri-blkio/nri-blkio/blkio/hostfs"
	"github.com/nri-blkio/nri-blkio/plugin/mailbox"
	"github.com/nri-blkio/nri-blkio/plugin/podevent"
	"github.com/nri-blkio/nri-blkio/plugin/reminder"
)

// Config is the configuration of a Recorder.
type Config struct {
	Dir string // the events directory
	Log logrus.FieldLogger
}

// Recorder keeps the events of the node's pods. Its methods are safe for concurrent use.
type Recorder struct {
	Config
	wake    chan struct{}                      // holds at most one token: some events are not in the directory yet
	files   *mailbox.Writer[podevent.Document] // of the goroutine of Run
	problem reminder.Reminder                  // of the goroutine of Run

	mu      sync.Mutex      // guards the fields below
	pods    map[string]*pod // by UID
	removed map[string]bool // the UIDs of pods whose files are to be removed
	total   int             // events of all pods
	counts
}

// counts has the numbers for metrics.
type counts struct{ noted, dropped int }

// pod has the events of one pod.
type pod struct {
	podevent.Document
	gone    time.Time // when the pod was first missed; zero while it is there
	unsaved bool      // the file does not have all of this yet
}

// New returns a recorder without events.
func New(c Config) *Recorder {
	files := mailbox.NewWriter(c.Dir, podevent.Format(), hostfs.ReplaceOffered)
	return &Recorder{Config: c, wake: make(chan struct{}, 1), files: files, pods: map[string]*pod{}, removed: map[string]bool{}}
}

// Note notes that something has happened to a pod. The key is the same if it happens again. The note may be any text. Pods without a UID of Kubernetes have no events.
func (r *Recorder) Note(of podevent.Pod, reason podevent.Reason, key podevent.Key, note string) {
	now := podevent.Time(time.Now())
	e := podevent.Event{Reason: reason, Key: key, Note: podevent.Text(note), Count: 1, First: now, Last: now}
	if e.Note != "" && of.IsValid() && r.note(of, e) {
		reminder.Wake(r.wake)
	}
}

// note reports whether a file has to change.
func (r *Recorder) note(of podevent.Pod, e podevent.Event) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.noted++
	p := r.podOf(of)
	if p == nil {
		r.dropped++
		return false
	}
	if i := p.Find(e.Reason, e.Key); i < 0 {
		r.add(p, e)
	} else {
		known := &p.Events[i]
		if e.Reason.Facts().IsFact {
			return false
		}
		known.Count++
		known.Note, known.Last = e.Note, e.Last // the amounts of a budget may be others
	}
	p.unsaved = true
	return true
}

// Since returns the events of a reason that have occurred since some time, of the pods that the node has. Each is alone in a document.
func (r *Recorder) Since(t time.Time, reason podevent.Reason) (out []podevent.Document) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.pods {
		for _, e := range p.Events {
			if e.Reason == reason && e.Last.After(t) && p.gone.IsZero() {
				out = append(out, podevent.Document{Pod: p.Pod, Events: []podevent.Event{e}})
			}
		}
	}
	return out
}

// podOf returns a pod, nil if there is no room for it. It is called with the lock.
func (r *Recorder) podOf(of podevent.Pod) *pod {
	p := r.pods[of.UID]
	if p != nil && p.Pod == of {
		return p
	}
	if p != nil { // no two pods of Kubernetes have one UID
		r.dropped += len(p.Events)
		r.forget(of.UID)
	}
	if len(r.pods) >= podevent.MaxPods {
		r.forgetOneGone()
	}
	if len(r.pods) >= podevent.MaxPods {
		return nil
	}
	p = &pod{Document: podevent.Document{Version: podevent.Version, Pod: of}}
	r.pods[of.UID] = p
	delete(r.removed, of.UID)
	return p
}

// forget forgets a pod and has its file removed. It is called with the lock.
func (r *Recorder) forget(uid string) {
	r.total -= len(r.pods[uid].Events)
	delete(r.pods, uid)
	r.removed[uid] = true
}

// forgetOneGone makes room by a pod that the node does not have any more. It is called with the lock.
func (r *Recorder) forgetOneGone() {
	for uid, p := range r.pods {
		if !p.gone.IsZero() {
			r.forget(uid)
			return
		}
	}
}

// add adds an event to a pod. It is called with the lock.
func (r *Recorder) add(p *pod, e podevent.Event) {
	if len(p.Events) >= podevent.MaxEvents {
		r.dropOldest(p)
	}
	p.Events = append(p.Events, e)
	if r.total++; r.total <= podevent.MaxTotal {
		return
	}
	for _, other := range r.pods {
		if len(other.Events) > len(p.Events) {
			p = other
		}
	}
	r.dropOldest(p)
}

// dropOldest drops the event of a pod that occurred last the longest time ago.
func (r *Recorder) dropOldest(p *pod) {
	oldest := 0
	for i := range p.Events {
		if p.Events[i].Last.Before(p.Events[oldest].Last) {
			oldest = i
		}
	}
	p.Events, p.unsaved = slices.Delete(p.Events, oldest, oldest+1), true
	r.total--
	r.dropped++
}

var (
	notedDesc   = desc("events_total", "Times that something was noted about a pod for its Events.")
	droppedDesc = desc("events_dropped_total", "Events that were displaced by later ones of their pod, or for which there was no room.")
)

func desc(name, help string) *prometheus.Desc {
	return prometheus.NewDesc("nri_blkio_"+name, help, nil, nil)
}

var _ prometheus.Collector = (*Recorder)(nil)

// Describe implements prometheus.Collector.
func (r *Recorder) Describe(out chan<- *prometheus.Desc) { prometheus.DescribeByCollect(r, out) }

// Collect implements prometheus.Collector.
func (r *Recorder) Collect(out chan<- prometheus.Metric) {
	c := r.numbers()
	out <- prometheus.MustNewConstMetric(notedDesc, prometheus.CounterValue, float64(c.noted))
	out <- prometheus.MustNewConstMetric(droppedDesc, prometheus.CounterValue, float64(c.dropped))
}

func (r *Recorder) numbers() counts {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.counts
}

const (
	// pause is the shortest time between two changes of the directory.
	pause = time.Second
	// sweep is the time between two comparisons with the pods of the node.
	sweep = 30 * time.Second
	// keepGone is the time for which the events of a removed pod are kept. A pod whose sandbox is made anew is removed for
	// some seconds.
	keepGone = 10 * time.Minute
)

// Run takes over the events in the directory, and keeps the directory equal to the events that are noted, until ctx ends.
// present returns the UIDs of the node's pods, and nil while they are not known. One process of the node at a time may run it.
func (r *Recorder) Run(ctx context.Context, present func() map[string]bool) {
	r.report(r.load())
	ticks := time.NewTicker(sweep)
	defer ticks.Stop()
	for {
		select {
		case <-ctx.Done():
			r.report(r.save())
			return
		case <-r.wake:
		case <-ticks.C:
			r.missing(time.Now(), present())
		}
		r.report(r.save())
		reminder.Sleep(ctx, pause)
	}
}

func (r *Recorder) report(err error) {
	if r.problem.Due(time.Now(), err) {
		r.Log.WithError(err).WithField("dir", r.Dir).Warn("Writing the events of pods failed, retrying")
	}
}

// load takes over the events in the directory. It removes files that cannot be read: they are of another version, or were
// never completed.
func (r *Recorder) load() error {
	_, err := r.files.Clean(func(uid string) bool {
		d, err := r.files.Read(uid)
		if err == nil {
			r.takeOver(d)
		}
		return err == nil
	})
	return err
}

// takeOver takes over the events of a pod from an earlier process. This one may have noted some already.
func (r *Recorder) takeOver(d *podevent.Document) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if known := r.pods[d.UID]; known != nil && known.Pod != d.Pod {
		return // it is that of an earlier pod
	}
	p := r.podOf(d.Pod)
	if p == nil {
		return
	}
	fresh := p.Events
	r.total += len(d.Events) - len(fresh)
	p.Events = d.Events
	for _, e := range fresh {
		i := p.Find(e.Reason, e.Key)
		switch {
		case i < 0:
			r.add(p, e)
		case !e.Reason.Facts().IsFact:
			p.Events[i].Count += e.Count
			p.Events[i].Note, p.Events[i].Last = e.Note, e.Last
		}
		p.unsaved = true
	}
}

// missing forgets the pods that the node has not had for some time.
func (r *Recorder) missing(now time.Time, present map[string]bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for uid, p := range r.pods {
		switch {
		case present == nil:
		case present[uid]:
			p.gone = time.Time{}
		case p.gone.IsZero():
			p.gone = now
		case now.Sub(p.gone) >= keepGone:
			r.forget(uid)
		}
	}
}

// save writes what is not in the directory yet. After an error, the next call tries again.
func (r *Recorder) save() error {
	var errs []error
	unsaved, removed := r.take()
	for _, uid := range removed {
		if err := r.files.Remove(uid); err != nil {
			r.putBack(uid)
			errs = append(errs, err)
		}
	}
	for i := range unsaved {
		if err := r.write(&unsaved[i]); err != nil {
			r.putBack(unsaved[i].UID)
			errs = append(errs, err)
		}
	}
	return cmp.Or(errs...) // the others have the same cause
}

func (r *Recorder) write(d *podevent.Document) error {
	data, err := podevent.Format().Encode(d)
	if err != nil {
		return err
	}
	_, err = r.files.Write(d.UID, data)
	return err
}

// take returns copies of the documents that are to be written, and the UIDs of the pods whose files are to be removed.
func (r *Recorder) take() (unsaved []podevent.Document, removed []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for uid := range r.removed {
		removed = append(removed, uid)
	}
	clear(r.removed)
	for _, p := range r.pods {
		if !p.unsaved {
			continue
		}
		p.unsaved = false
		d := p.Document
		d.Events = slices.Clone(p.Events)
		unsaved = append(unsaved, d)
	}
	return unsaved, removed
}

// putBack has the file of a pod written or removed again.
func (r *Recorder) putBack(uid string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p := r.pods[uid]; p != nil {
		p.unsaved = true
	} else {
		r.removed[uid] = true
	}
}
