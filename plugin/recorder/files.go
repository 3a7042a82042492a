package recorder

import (
	"context"
	"slices"
	"time"

	"github.com/nri-blkio/nri-blkio/plugin/podevent"
	"github.com/nri-blkio/nri-blkio/plugin/reminder"
)

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

// report logs an error of the directory, and again while it lasts.
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
	if len(errs) > 0 {
		return errs[0] // the others have the same cause
	}
	return nil
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
