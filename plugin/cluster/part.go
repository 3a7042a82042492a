package cluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/nri-blkio/nri-blkio/blkio/hostfs"
	"github.com/nri-blkio/nri-blkio/plugin/mailbox"
	"github.com/nri-blkio/nri-blkio/plugin/poddoc"
	"github.com/nri-blkio/nri-blkio/plugin/podfacts"
	"github.com/nri-blkio/nri-blkio/plugin/reminder"
)

// Config holds what the part works with.
type Config struct {
	Dir string // the exchange directory
	API API
	// Node is the name of the node whose VolumeAttachments are read, "" for none.
	Node string
	// EventsDir is the directory with what the limits part has noted about pods, and with its report about the node. Without
	// it the part sends no Events and no reports.
	EventsDir string
	// Resync is the time between two comparisons of the directory with what was written; 0 is 30 s.
	Resync time.Duration
	// Retry is the shortest pause after a document could not be written, and a 30th of the longest; 0
	// is one second.
	Retry time.Duration
	Log   logrus.FieldLogger
}

// Part is the cluster part.
type Part struct {
	Config
	pods    *pods
	objects *objects
	contact *contact
	queue   *queue
	files   *mailbox.Writer[poddoc.Document]
	status  *status
	limit   *limit // of the requests for single objects
	// listsFirst is true if this API server cannot send the initial state with a watch, which those
	// of Kubernetes 1.34 and later can.
	listsFirst atomic.Bool
	log        struct{ api, dir, objects reminder.Reminder } // of the goroutine of Run
}

// New returns a part that does not run yet.
func New(c Config) *Part {
	if c.Resync == 0 {
		c.Resync = 30 * time.Second
	}
	if c.Retry == 0 {
		c.Retry = time.Second
	}
	p := &Part{Config: c, contact: newContact(time.Now()), queue: newQueue(), status: &status{}, limit: newLimit()}
	p.files = mailbox.NewWriter(c.Dir, poddoc.Format(), hostfs.ReplaceFile)
	p.pods = newPods(p.queue.add)
	p.objects = newObjects(p.follow, p.queue.add)
	return p
}

// Run watches and writes until the context ends. The documents stay. It returns no error: what fails
// is tried again, and reported by Health.
func (p *Part) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var watches sync.WaitGroup
	pods := follower{Part: p, ref: Ref{Kind: Pods}, to: p.pods}
	watches.Go(func() { repeat(ctx, pods.watchOnce) })
	if p.EventsDir != "" {
		watches.Go(func() { p.sendEvents(ctx) })
		watches.Go(func() { p.sendReports(ctx) })
	}
	defer p.objects.wait()
	defer watches.Wait()
	defer cancel()
	resync := time.NewTicker(p.Resync)
	defer resync.Stop()
	retry := time.NewTimer(0)
	defer retry.Stop()
	pause := p.Retry
	var compared error
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-p.queue.wake:
		case <-retry.C:
		case <-resync.C:
			compared = p.compare()
		}
		next, err := p.syncAll(ctx)
		if err != nil {
			retry.Reset(pause)
			pause = min(2*pause, 30*p.Retry)
		} else {
			pause = p.Retry
			if !next.IsZero() {
				retry.Reset(time.Until(next))
			}
		}
		p.status.wrote(time.Now(), errors.Join(err, compared))
		p.remind()
	}
}

// syncAll writes or removes the documents that are due. It stops at the first one that
// fails, because the next ones will fail as well. It returns when further ones become due, see [queue.take].
func (p *Part) syncAll(ctx context.Context) (next time.Time, err error) {
	uids, next := p.queue.take(time.Now())
	for i, uid := range uids {
		err := p.sync(ctx, uid)
		if err != nil && ctx.Err() == nil {
			for _, rest := range uids[i:] {
				p.queue.put(rest)
			}
			return next, err
		}
	}
	return next, nil
}

// sync writes the document of a pod, as far as that is known, or removes it.
func (p *Part) sync(ctx context.Context, uid string) error {
	pod := p.pods.of(uid)
	if pod == nil {
		p.objects.need(ctx, uid, nil)
		err := p.files.Remove(uid)
		p.status.documents.Store(int64(p.files.Documents()))
		return err
	}
	pod = p.watch(ctx, uid, pod)
	d := p.document(pod)
	if d == nil {
		return nil // an answer of the API server brings it back
	}
	data, err := poddoc.Format().Encode(d)
	if err != nil {
		// The API server has accepted what it should not. Other pods are not affected.
		p.Log.WithError(err).WithField("pod", pod.key).Error("No document for a pod: its limits are those of its creation")
		return nil
	}
	written, err := p.files.Write(uid, data)
	if written {
		p.status.writes.Add(1)
	}
	p.status.documents.Store(int64(p.files.Documents()))
	return err
}

// document returns the document of a pod, and nil while the namespace is unknown. Until all other objects are known, it returns
// the document that is already there, or an empty one, with the current labels of the namespace. A tenant can name many claims,
// and the rule for the namespace must not wait for them.
func (p *Part) document(pod *pod) *poddoc.Document {
	if p.knows(pod.refs(p.objects.get, p.Node)) {
		return pod.document(p.objects.get, p.Node)
	}
	if !p.knows([]Ref{pod.namespace()}) {
		return nil
	}
	there, err := p.files.Read(pod.doc.UID)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		there = &poddoc.Document{Version: poddoc.Version, UID: pod.doc.UID, Facts: podfacts.Facts{Namespace: pod.doc.Namespace, Name: pod.doc.Name}}
	case err != nil, there.Namespace != pod.doc.Namespace, there.Name != pod.doc.Name:
		return nil // it stays until the whole document is known
	}
	pod.setNamespace(there, p.objects.get)
	return there
}

// watch starts and ends the watches of a pod's objects. It returns the pod, without its volumes if
// there is no room for their claims.
func (p *Part) watch(ctx context.Context, uid string, pod *pod) *pod {
	if p.objects.need(ctx, uid, pod.refs(p.objects.get, p.Node)) {
		return pod
	}
	pod = pod.withoutVolumes(fmt.Sprintf("%d objects are watched on this node, the maximum", p.objects.most))
	p.objects.need(ctx, uid, pod.refs(p.objects.get, p.Node))
	return pod
}

func (p *Part) knows(refs []Ref) bool {
	for _, ref := range refs {
		if _, known := p.objects.get(ref); !known {
			return false
		}
	}
	return true
}

// compare removes the documents of pods that ended while the part did not run, and has documents
// that were removed written again.
func (p *Part) compare() error {
	if !p.pods.synced.Load() {
		return nil // everything stays until the API server has answered
	}
	missing, err := p.files.Clean(func(uid string) bool { return p.pods.of(uid) != nil })
	for _, uid := range missing {
		p.queue.put(uid)
	}
	return err
}

func (p *Part) remind() {
	now := time.Now()
	answers, _, err := p.contact.state()
	if p.log.api.Due(now, err) {
		p.Log.WithError(err).Warn("The API server does not answer: documents stay as they are")
	}
	if _, _, err := p.status.writing(); p.log.dir.Due(now, err) {
		p.Log.WithError(err).Warn("Writing documents failed, retrying")
	}
	var unread error
	_, failed, err := p.objects.problem()
	if answers && failed > 0 {
		unread = errUnread
	}
	if p.log.objects.Due(now, unread) {
		p.Log.WithError(err).WithField("objects", failed).Warn("Some objects cannot be read: documents of the pods that name them stay as they are, or are empty")
	}
}

// errUnread stands for the errors of all objects, so that those that last are logged seldom, whatever objects they name.
var errUnread = errors.New("some objects cannot be read")

// answered notes the result of a request for the pods of the node.
func (p *Part) answered(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	p.status.count(err)
	before, _, _ := p.contact.state()
	p.contact.report(time.Now(), err)
	if after, _, _ := p.contact.state(); before != after {
		reminder.Wake(p.queue.wake) // to log it
	}
}
