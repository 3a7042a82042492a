package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nri-blkio/nri-blkio/plugin/mailbox"
	"github.com/nri-blkio/nri-blkio/plugin/podevent"
	"github.com/nri-blkio/nri-blkio/plugin/reminder"
)

// Rates of requests for Events. client-go has a limit for each object and source, of 25 and one every five minutes; the
// kubelet has one of 50 a second for the node.
const (
	eventsOfPodAtOnce, eventOfPodEvery = podevent.MaxEvents, 30 * time.Second
	eventsAtOnce, eventEvery           = 25, time.Second
	// countEvery is the time between two requests for one Event: to change its count, or to try again after the API server
	// has refused it.
	countEvery = 5 * time.Minute
	// maxEventAge is the age from which on an event that was not sent is not sent any more. It is also the time for which the
	// API server keeps Events by default: an older one may have been sent and dropped.
	maxEventAge = time.Hour
	// lookEvery is the time between two looks at the events directory.
	lookEvery = time.Second
)

// sender sends what the limits part has noted about pods as Events. The events directory has the state of each event, so the
// sender has no queue that could grow while the API server is away: it compares that state with what it has sent.
//
// It does not use client-go's tools/events. That needs the clientset, which brings all kinds of all API groups, has a queue of
// 1,000 Events that drops the newest ones of all pods alike, and begins a new series after each restart.
type sender struct {
	part   *Part
	files  *mailbox.Reader[podevent.Document]
	pods   map[string]*eventsOfPod // by UID: those with a document
	limit  *rate.Limiter           // of the node
	last   string                  // the UID of the pod that had the last turn
	resume time.Time               // after a failed request, the time of the next one
	pause  time.Duration           // before that; 0 after a success
	log    struct {
		api     reminder.Reminder
		refusal time.Time // when one was last logged
	}
}

// eventsOfPod has the document of one pod, and what was sent for it.
type eventsOfPod struct {
	*podevent.Document
	names []string // of the objects for its events
	limit *rate.Limiter
	sent  map[string]sent // by the name of the Event
}

// sent is what was sent for one event.
type sent struct {
	count   int       // that the API server knows
	at      time.Time // of the last request
	created bool      // false if the API server has refused it
}

func newSender(p *Part) *sender {
	s := &sender{part: p, pods: map[string]*eventsOfPod{}, limit: rate.NewLimiter(rate.Every(eventEvery), eventsAtOnce)}
	s.files = mailbox.NewReader(mailbox.Config[podevent.Document]{Dir: p.EventsDir, Format: podevent.Format(), Changed: s.changed, Warn: func(err error) {
		p.Log.WithError(err).WithField("dir", p.EventsDir).Warn("Some events of pods cannot be read: they are not sent")
	}})
	return s
}

// changed takes over the document of a pod that is new or has changed, nil if there is none any more.
func (s *sender) changed(uid string, d *podevent.Document) {
	if d == nil {
		delete(s.pods, uid)
		return
	}
	pod := s.pods[uid]
	if pod == nil {
		pod = &eventsOfPod{limit: rate.NewLimiter(rate.Every(eventOfPodEvery), eventsOfPodAtOnce), sent: map[string]sent{}}
		s.pods[uid] = pod
	}
	pod.Document, pod.names = d, nil
	for i := range d.Events {
		pod.names = append(pod.names, d.ObjectName(&d.Events[i]))
	}
	if len(pod.sent) > 2*podevent.MaxEvents { // the limits part has dropped some
		maps.DeleteFunc(pod.sent, func(name string, _ sent) bool { return !slices.Contains(pod.names, name) })
	}
}

func (p *Part) sendEvents(ctx context.Context) {
	s := newSender(p)
	reminder.Every(ctx, lookEvery, func(now time.Time) { s.step(ctx, now) })
}

func (s *sender) step(ctx context.Context, now time.Time) {
	s.files.Read(now)
	if answers, _, _ := s.part.contact.state(); answers && !now.Before(s.resume) {
		err := s.sendDue(ctx, now)
		if ctx.Err() == nil && s.log.api.Due(now, err) {
			s.part.Log.WithError(err).Warn("Sending Events failed, retrying")
		}
	}
	s.part.status.events.pending.Store(s.pending(now))
}

// sendDue sends events in turns of the pods, until none is due, the rates do not allow more, or a request fails.
func (s *sender) sendDue(ctx context.Context, now time.Time) error {
	for sentSome := true; sentSome; {
		sentSome = false
		for _, uid := range s.turns() {
			pod := s.pods[uid]
			i := pod.next(now)
			if i < 0 || !s.isOurs(pod.Pod) || pod.limit.TokensAt(now) < 1 {
				continue
			}
			if !s.limit.AllowN(now, 1) {
				return nil
			}
			pod.limit.AllowN(now, 1)
			s.last, sentSome = uid, true
			if err := s.send(ctx, now, pod, i); err != nil {
				return err
			}
		}
	}
	return nil
}

// turns returns the UIDs of the pods, beginning after the one that had the last turn.
func (s *sender) turns() []string {
	uids := slices.Sorted(maps.Keys(s.pods))
	i, found := slices.BinarySearch(uids, s.last)
	if found {
		i++
	}
	return append(uids[i:len(uids):len(uids)], uids[:i]...)
}

// isOurs reports whether the API server has a pod of this node with this UID and these names.
func (s *sender) isOurs(of podevent.Pod) bool {
	pod := s.part.pods.of(of.UID)
	return pod != nil && pod.doc.Namespace == of.Namespace && pod.doc.Name == of.Name
}

// next returns the index of the first event that is due, or -1.
func (p *eventsOfPod) next(now time.Time) int {
	for i := range p.Events {
		if p.isDue(i, now) {
			return i
		}
	}
	return -1
}

func (p *eventsOfPod) isDue(i int, now time.Time) bool {
	if now.Sub(p.Events[i].Last) > maxEventAge {
		return false
	}
	was, known := p.sent[p.names[i]]
	return !known || (p.Events[i].Count != was.count || !was.created) && now.Sub(was.at) >= countEvery
}

func (s *sender) pending(now time.Time) (n int64) {
	for _, pod := range s.pods {
		for i := range pod.Events {
			if pod.isDue(i, now) {
				n++
			}
		}
	}
	return n
}

// send sends an event. An error means that no Event can be sent now.
func (s *sender) send(ctx context.Context, now time.Time, pod *eventsOfPod, i int) error {
	e, name := &pod.Events[i], pod.names[i]
	created, err := s.create(ctx, pod.Pod, pod.sent[name], e)
	switch counts := &s.part.status.events; {
	case err == nil && created:
		counts.created.Add(1)
	case err == nil:
		counts.counted.Add(1)
	case isRefusal(err):
		counts.refused.Add(1)
		if now.Sub(s.log.refusal) >= reminder.Interval { // a tenant can cause refusals
			s.log.refusal = now
			s.part.Log.WithError(err).Warn("The API server refuses an Event (logged every ten minutes)")
		}
	default:
		s.pause = min(max(2*s.pause, minPause), maxPause)
		s.resume = now.Add(s.pause)
		return err
	}
	s.pause = 0
	pod.sent[name] = sent{count: e.Count, at: now, created: err == nil}
	return nil
}

func (s *sender) create(ctx context.Context, of podevent.Pod, was sent, e *podevent.Event) (created bool, err error) {
	if was.created {
		if err := s.request(ctx, s.part.API.CountEvent, of, e); !apierrors.IsNotFound(err) {
			return false, err
		}
		// The API server has dropped it, since it is old.
	}
	err = s.request(ctx, s.part.API.CreateEvent, of, e)
	if !apierrors.IsAlreadyExists(err) {
		return true, err
	}
	if e.Count < 2 { // it was created before a restart
		return false, nil
	}
	return false, s.request(ctx, s.part.API.CountEvent, of, e)
}

// request sends a request, and counts it. An answer of the API server is a success.
func (s *sender) request(ctx context.Context, send func(context.Context, podevent.Pod, *podevent.Event) error, of podevent.Pod, e *podevent.Event) error {
	err := send(ctx, of, e)
	switch {
	case ctx.Err() != nil:
	case apierrors.IsAlreadyExists(err), apierrors.IsNotFound(err):
		s.part.status.count(nil)
	default:
		s.part.status.count(err)
	}
	return err
}

// isRefusal reports whether the API server has decided about an Event: the next ones may have another answer.
func isRefusal(err error) bool {
	status, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok || apierrors.IsUnauthorized(err) || apierrors.IsTooManyRequests(err) || apierrors.IsTimeout(err) {
		return false
	}
	code := status.Status().Code
	return 400 <= code && code < 500
}

// reportingController is how Events name the program.
const reportingController = "nri-blkio"

// CreateEvent implements API.
func (c *client) CreateEvent(ctx context.Context, of podevent.Pod, e *podevent.Event) error {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	return c.eventGroup.Post().Namespace(of.Namespace).Resource("events").Body(newEvent(c.node, of, e)).Do(ctx).Error()
}

// CountEvent implements API.
func (c *client) CountEvent(ctx context.Context, of podevent.Pod, e *podevent.Event) error {
	patch, err := json.Marshal(map[string]any{"series": seriesOf(e)})
	if err != nil { // not reached
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	return c.eventGroup.Patch(types.MergePatchType).Namespace(of.Namespace).Resource("events").Name(of.ObjectName(e)).Body(patch).Do(ctx).Error()
}

func newEvent(node string, of podevent.Pod, e *podevent.Event) *eventsv1.Event {
	return &eventsv1.Event{
		ObjectMeta:          metav1.ObjectMeta{Namespace: of.Namespace, Name: of.ObjectName(e)},
		EventTime:           metav1.NewMicroTime(e.First),
		Series:              seriesOf(e),
		ReportingController: reportingController,
		ReportingInstance:   node,
		Action:              e.Reason.Facts().Action,
		Reason:              string(e.Reason),
		Regarding:           corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: of.Namespace, Name: of.Name, UID: types.UID(of.UID)},
		Note:                e.Note,
		Type:                e.Reason.Facts().Type,
	}
}

// seriesOf returns nil for what has happened once: Kubernetes takes no series of one.
func seriesOf(e *podevent.Event) *eventsv1.EventSeries {
	if e.Count < 2 {
		return nil
	}
	const most = 1 << 31 // the field has 32 bits
	return &eventsv1.EventSeries{Count: int32(min(e.Count, most-1)), LastObservedTime: metav1.NewMicroTime(e.Last)}
}
