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
	"k8s.io/client-go/tools/cache"
)

// API is what the part asks the API server for.
type API interface {
	// Pods lists and watches the pods of the node.
	Pods() cache.ListerWatcherWithContext
	// List reads the state of one object.
	List(context.Context, Ref) (Listed, error)
	// Watch watches one object from a version on. With an empty version it begins with the initial
	// state, which a bookmark ends.
	Watch(ctx context.Context, ref Ref, version string) (Events, error)
}

// Listed is the state of one object.
type Listed struct {
	Object  runtime.Object // nil if there is none
	Version string         // from which a watch continues
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
	core, storage, eventGroup *rest.RESTClient
	node                      string
	decoder                   runtime.Decoder    // of objects
	events                    runtime.Serializer // of the frames of a watch
}

// config returns how to reach the API server.
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
func NewAPI(s Server) (Client, error) {
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
	info, ok := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), runtime.ContentTypeProtobuf)
	if !ok {
		return nil, errors.New("client of the API server: no protobuf")
	}
	config.NegotiatedSerializer = codecs.WithoutConversion()
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf // smaller than JSON
	c := &client{node: s.Node, decoder: codecs.UniversalDeserializer(), events: info.StreamSerializer.Serializer}
	if c.core, err = group(config, transport, corev1.SchemeGroupVersion); err != nil {
		return nil, err
	}
	if c.storage, err = group(config, transport, storagev1.SchemeGroupVersion); err != nil {
		return nil, err
	}
	c.eventGroup, err = group(config, transport, eventsv1.SchemeGroupVersion)
	return c, err
}

// group returns a client for one API group.
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

// Pods selects the pods of the node that can have running containers. Those that have ended can be
// thousands.
func (c *client) Pods() cache.ListerWatcherWithContext {
	selector := fields.AndSelectors(
		fields.OneTermEqualSelector("spec.nodeName", c.node),
		fields.OneTermNotEqualSelector("status.phase", string(corev1.PodSucceeded)),
		fields.OneTermNotEqualSelector("status.phase", string(corev1.PodFailed)),
	).String()
	return cache.NewFilteredListWatchFromClient(c.core, string(Pods), "", func(o *metav1.ListOptions) { o.FieldSelector = selector })
}

// get returns a request for one object. A list with the name is used instead of the object's own
// path, because a watch of that needs another right.
func (c *client) get(ref Ref, o metav1.ListOptions) *rest.Request {
	group := c.core
	if ref.Kind == AttributesClasses {
		group = c.storage
	}
	o.FieldSelector = fields.OneTermEqualSelector("metadata.name", ref.Name).String()
	return group.Get().Namespace(ref.Namespace).Resource(string(ref.Kind)).VersionedParams(&o, metav1.ParameterCodec)
}

// List implements API. The API server answers from its cache.
func (c *client) List(ctx context.Context, ref Ref) (Listed, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	list, err := c.get(ref, metav1.ListOptions{ResourceVersion: "0"}).Do(ctx).Get()
	if err != nil {
		return Listed{}, err
	}
	m, err := meta.ListAccessor(list)
	if err != nil {
		return Listed{}, err
	}
	out := Listed{Version: m.GetResourceVersion()}
	objects, err := meta.ExtractList(list)
	if len(objects) > 0 {
		out.Object = objects[0]
	}
	return out, err
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
	return &events{c, body, cancel}, nil
}

// events reads the answer to a watch. Each frame of it has its length, four bytes in big-endian
// order, and an event: NewLengthDelimitedFrameReader in apimachinery's pkg/util/framer. That reader
// keeps a buffer for each watch. This type allocates one for each event.
type events struct {
	client *client
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
	return e.client.decode(frame)
}

func (c *client) decode(frame []byte) (watch.Event, error) {
	var out metav1.WatchEvent
	if _, _, err := c.events.Decode(frame, nil, &out); err != nil {
		return watch.Event{}, fmt.Errorf("decode an event: %w", err)
	}
	object, _, err := c.decoder.Decode(out.Object.Raw, nil, nil)
	if err != nil {
		return watch.Event{}, fmt.Errorf("decode an event: %w", err)
	}
	return watch.Event{Type: watch.EventType(out.Type), Object: object}, nil
}

// Close implements Events.
func (e *events) Close() error {
	e.cancel()
	return e.body.Close()
}
