package cluster

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"path/filepath"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"github.com/nri-blkio/nri-blkio/plugin/podevent"
)

// API is what the part asks the API server for.
type API interface {
	// List reads the state of one object, or of all pods of the node: it calls each with one object after the other. It
	// returns the version from which a watch continues.
	List(ctx context.Context, ref Ref, each func(runtime.Object)) (version string, err error)
	// Watch watches what List lists from a version on. With an empty version it begins with the initial
	// state, which a bookmark ends.
	Watch(ctx context.Context, ref Ref, version string) (Events, error)
	// CreateEvent creates an Event of a pod. The error is that of an object that exists if it was created before.
	CreateEvent(ctx context.Context, of podevent.Pod, e *podevent.Event) error
	// CountEvent changes how often an existing Event has occurred, at least twice, and when it did last.
	CountEvent(ctx context.Context, of podevent.Pod, e *podevent.Event) error
	// ApplyReport creates the object with the report about the node, or replaces it. One request does both.
	ApplyReport(ctx context.Context, now time.Time, report []byte) error
}

// Events are the events of a watch.
type Events interface {
	// Next waits for the next event. The error is [io.EOF] when the watch has ended as it should.
	Next() (watch.Event, error)
	Close() error
}

// Server says how to reach the API server.
type Server struct {
	Host, Port string
	// Dir has the files token and ca.crt, as the kubelet mounts them for a service account. A token
	// that changes is read again.
	Dir   string
	Node  string // whose pods are watched
	Agent string // names the program to the API server
}

// client asks the API server. It does not use the clientset of client-go, which brings all kinds of
// all API groups: 36 MB of program, and 1.6 MiB of memory for each part of the program that does not
// even use it.
type client struct {
	core, storage, eventGroup, leases *rest.RESTClient

	node, tokenDir string
	decoder        runtime.Decoder // of objects
}

func (s Server) config() *rest.Config {
	return &rest.Config{
		Host:                      "https://" + net.JoinHostPort(s.Host, s.Port),
		BearerTokenFile:           filepath.Join(s.Dir, "token"),
		TLSClientConfig:           rest.TLSClientConfig{CAFile: filepath.Join(s.Dir, "ca.crt")},
		UserAgent:                 s.Agent,
		WarningHandlerWithContext: rest.NoWarnings{},
		QPS:                       -1, // that limit would not hold for watches; see follower.ready
	}
}

// NewAPI returns a client of the API server.
func NewAPI(s Server) (API, error) {
	config := s.config()
	transport, err := rest.HTTPClientFor(config) // one for all groups
	if err != nil {
		return nil, fmt.Errorf("client of the API server: %w", err)
	}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, storagev1.AddToScheme, eventsv1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	codecs := serializer.NewCodecFactory(scheme)
	config.NegotiatedSerializer = codecs.WithoutConversion()
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf // smaller than JSON
	c := &client{node: s.Node, tokenDir: s.Dir, decoder: codecs.UniversalDeserializer()}
	for version, to := range map[schema.GroupVersion]**rest.RESTClient{
		corev1.SchemeGroupVersion: &c.core, storagev1.SchemeGroupVersion: &c.storage,
		eventsv1.SchemeGroupVersion: &c.eventGroup, coordinationv1.SchemeGroupVersion: &c.leases,
	} {
		if *to, err = group(config, transport, version); err != nil {
			return nil, err
		}
	}
	return c, nil
}

func group(config *rest.Config, transport *http.Client, version schema.GroupVersion) (*rest.RESTClient, error) {
	c := rest.CopyConfig(config)
	c.GroupVersion, c.APIPath = &version, "/apis"
	if version.Group == "" {
		c.APIPath = "/api"
	}
	out, err := rest.RESTClientForConfigAndClient(c, transport)
	if err != nil {
		return nil, fmt.Errorf("client of the API server: %w", err)
	}
	return out, nil
}

// podsSelector selects the pods of the node that can have running containers. Those that have ended can be
// thousands.
func (c *client) podsSelector() fields.Selector {
	return fields.AndSelectors(
		fields.OneTermEqualSelector("spec.nodeName", c.node),
		fields.OneTermNotEqualSelector("status.phase", string(corev1.PodSucceeded)),
		fields.OneTermNotEqualSelector("status.phase", string(corev1.PodFailed)),
	)
}

// get returns a request for one object, or for the pods of the node. A list with the name is used instead of the object's own
// path, because a watch of that needs another right.
func (c *client) get(ref Ref, o metav1.ListOptions) *rest.Request {
	group := c.core
	if ref.Kind == AttributesClasses || ref.Kind == Attachments {
		group = c.storage
	}
	selector := fields.OneTermEqualSelector("metadata.name", ref.Name)
	if ref.Kind == Pods {
		selector = c.podsSelector()
	}
	o.FieldSelector = selector.String()
	return group.Get().Namespace(ref.Namespace).Resource(string(ref.Kind)).VersionedParams(&o, metav1.ParameterCodec)
}

// List implements API. The API server answers from its cache.
func (c *client) List(ctx context.Context, ref Ref, each func(runtime.Object)) (version string, err error) {
	request := c.get(ref, metav1.ListOptions{ResourceVersion: "0"})
	if ref.Kind == Pods {
		return listPods(ctx, request, each)
	}
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	list, err := request.Do(ctx).Get()
	if err != nil {
		return "", err
	}
	m, err := meta.ListAccessor(list)
	if err != nil {
		return "", err
	}
	return m.GetResourceVersion(), meta.EachListItem(list, func(o runtime.Object) error {
		each(o)
		return nil
	})
}

// listPods reads a list of pods, and has one of them in memory at a time.
func listPods(ctx context.Context, request *rest.Request, each func(runtime.Object)) (version string, err error) {
	ctx, cancel := context.WithTimeout(ctx, podsTime)
	defer cancel()
	body, err := request.Stream(ctx)
	if err != nil {
		return "", err
	}
	defer body.Close()
	return readPodList(body, each)
}

// Watch implements API.
func (c *client) Watch(ctx context.Context, ref Ref, version string) (Events, error) {
	seconds := int64((watchTime + rand.N(watchTime)).Seconds())
	o := metav1.ListOptions{Watch: true, AllowWatchBookmarks: true, ResourceVersion: version, TimeoutSeconds: &seconds}
	if version == "" {
		// 0: the API server sends the state in its cache, without asking etcd for the newest version.
		o.ResourceVersion, o.SendInitialEvents, o.ResourceVersionMatch = "0", new(true), metav1.ResourceVersionMatchNotOlderThan
	}
	ctx, cancel := context.WithCancel(ctx)
	late := time.AfterFunc(answerTime, cancel)
	body, err := c.get(ref, o).Stream(ctx)
	if !late.Stop() && err != nil {
		err = errLate
	}
	if err != nil {
		cancel()
		return nil, err
	}
	return &events{c, ref.Kind, body, cancel}, nil
}

// events reads the answer to a watch. Each frame of it has its length, four bytes in big-endian
// order, and an event: NewLengthDelimitedFrameReader in apimachinery's pkg/util/framer. That reader
// keeps a buffer for each watch. This type allocates one for each event.
type events struct {
	client *client
	kind   Kind
	body   io.ReadCloser
	cancel context.CancelFunc
}

// maxFrame bounds an event. The API server stores no object of more than 3 MiB.
const maxFrame = 4 << 20

// Next implements Events.
func (e *events) Next() (watch.Event, error) {
	var length [4]byte
	if _, err := io.ReadFull(e.body, length[:]); err != nil {
		return watch.Event{}, err
	}
	n := binary.BigEndian.Uint32(length[:])
	if n > maxFrame {
		return watch.Event{}, fmt.Errorf("an event of %d bytes (maximum %d)", n, maxFrame)
	}
	frame := make([]byte, n)
	if _, err := io.ReadFull(e.body, frame); err != nil {
		return watch.Event{}, fmt.Errorf("read an event: %w", errors.Join(err, io.ErrUnexpectedEOF))
	}
	return e.decode(frame)
}

func (e *events) decode(frame []byte) (watch.Event, error) {
	typ, raw, err := eventOf(frame)
	if err != nil {
		return watch.Event{}, fmt.Errorf("decode an event: %w", err)
	}
	out := watch.Event{Type: watch.EventType(typ)}
	if e.kind == Pods && out.Type != watch.Error {
		out.Object, err = podEnvelope(raw)
	} else {
		out.Object, _, err = e.client.decoder.Decode(raw, nil, nil)
	}
	if err != nil {
		return watch.Event{}, fmt.Errorf("decode an event: %w", err)
	}
	return out, nil
}

// Close implements Events.
func (e *events) Close() error {
	e.cancel()
	return e.body.Close()
}
