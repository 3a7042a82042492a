package cluster

import (
	"context"
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nri-blkio/nri-blkio/plugin/podevent"
)

// reportingController is how Events name the program.
const reportingController = "nri-blkio"

// EventAPI writes Events at the API server.
type EventAPI interface {
	// CreateEvent creates an Event of a pod. The error is that of an object that exists if it was created before.
	CreateEvent(ctx context.Context, of podevent.Pod, e *podevent.Event) error
	// CountEvent changes how often an existing Event has occurred, at least twice, and when it did last.
	CountEvent(ctx context.Context, of podevent.Pod, e *podevent.Event) error
}

// Client is a client of the API server with all that the part asks for.
type Client interface {
	API
	EventAPI
	ReportAPI
}

// CreateEvent implements EventAPI.
func (c *client) CreateEvent(ctx context.Context, of podevent.Pod, e *podevent.Event) error {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	return c.eventGroup.Post().Namespace(of.Namespace).Resource("events").Body(newEvent(c.node, of, e)).Do(ctx).Error()
}

// CountEvent implements EventAPI.
func (c *client) CountEvent(ctx context.Context, of podevent.Pod, e *podevent.Event) error {
	patch, err := json.Marshal(map[string]any{"series": seriesOf(e)})
	if err != nil { // not reached
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	return c.eventGroup.Patch(types.MergePatchType).Namespace(of.Namespace).Resource("events").Name(of.ObjectName(e)).Body(patch).Do(ctx).Error()
}

// newEvent returns the Event for what has happened to a pod of a node.
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
