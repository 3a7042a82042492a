package cluster

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/pem"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/watch"
)

// newTestClient returns a client of an API server that answers all requests in one way.
func newTestClient(t testing.TB, answer http.HandlerFunc) *client {
	t.Helper()
	server := httptest.NewTLSServer(answer)
	t.Cleanup(server.Close)
	host, port, err := net.SplitHostPort(server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	s := Server{Host: host, Port: port, Dir: t.TempDir(), Node: "worker-1", Agent: "test"}
	if _, err := NewAPI(s); err == nil {
		t.Error("no error without a certificate")
	}
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	for name, data := range map[string][]byte{"token": []byte("t"), "ca.crt": ca} {
		if err := os.WriteFile(filepath.Join(s.Dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	api, err := NewAPI(s)
	if err != nil {
		t.Fatal(err)
	}
	return api.(*client)
}

// frames returns events as an API server sends them.
func frames(t testing.TB, events ...watch.Event) []byte {
	t.Helper()
	var out []byte
	for _, e := range events {
		var object bytes.Buffer
		e.Object.GetObjectKind().SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim"))
		if err := protobuf.NewSerializer(nil, nil).Encode(e.Object, &object); err != nil {
			t.Fatal(err)
		}
		wrapped := metav1.WatchEvent{Type: string(e.Type), Object: runtime.RawExtension{Raw: object.Bytes()}}
		event, err := wrapped.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		out = binary.BigEndian.AppendUint32(out, uint32(len(event)))
		out = append(out, event...)
	}
	return out
}

// reading returns the events of an answer.
func reading(c *client, data []byte) *events {
	return &events{c, Claims, io.NopCloser(bytes.NewReader(data)), func() {}}
}

// TestEvents verifies that a watch returns the events that the API server sends, and ends without an error if the
// connection ends between two events.
func TestEvents(t *testing.T) {
	c := newTestClient(t, nil)
	want := newClaim("wbps=1Mi")
	e := reading(c, frames(t, watch.Event{Type: watch.Added, Object: want}, watch.Event{Type: watch.Deleted, Object: newClaim("x")}))
	for _, typ := range []watch.EventType{watch.Added, watch.Deleted} {
		got, err := e.Next()
		if err != nil || got.Type != typ {
			t.Fatalf("%s: %v", got.Type, err)
		}
		if claim, ok := got.Object.(*corev1.PersistentVolumeClaim); !ok || typ == watch.Added && claim.Annotations["limits.blkio.noderesource.dev"] != "wbps=1Mi" {
			t.Errorf("%s: %v", typ, got.Object)
		}
	}
	if _, err := e.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("at the end: %v", err)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
}

// TestEventsBroken verifies that an answer that is cut off within an event, or that is not an event, is an error, and needs
// little memory.
func TestEventsBroken(t *testing.T) {
	c := newTestClient(t, nil)
	whole := frames(t, watch.Event{Type: watch.Added, Object: newClaim("x")})
	for name, tt := range map[string]struct {
		data []byte
		want string
	}{
		"in the length": {whole[:2], "unexpected EOF"},
		"in the event":  {whole[:20], "unexpected EOF"},
		"no event":      {[]byte{0, 0, 0, 4, 255, 255, 255, 255}, "decode an event"},
		"empty":         {[]byte{0, 0, 0, 0}, "decode an event"},
		"large":         {[]byte{255, 255, 255, 255}, "maximum 4194304"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := reading(c, tt.data).Next()
			if err == nil || errors.Is(err, io.EOF) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want %q", err, tt.want)
			}
		})
	}
}

// TestRequestsOf verifies that each request names one object, or the pods of the node.
func TestRequestsOf(t *testing.T) {
	c := newTestClient(t, nil)
	for ref, want := range map[Ref]string{
		claimRef("a"):                   "/api/v1/namespaces/prod/persistentvolumeclaims?fieldSelector=metadata.name%3Da",
		namespaceRef():                  "/api/v1/namespaces?fieldSelector=metadata.name%3Dprod",
		{Kind: Pods}:                    "/api/v1/pods?fieldSelector=spec.nodeName%3Dworker-1%2Cstatus.phase%21%3DSucceeded%2Cstatus.phase%21%3DFailed",
		{Volumes, "", "pv"}:             "/api/v1/persistentvolumes?fieldSelector=metadata.name%3Dpv",
		{Attachments, "", "csi-1"}:      "/apis/storage.k8s.io/v1/volumeattachments?fieldSelector=metadata.name%3Dcsi-1",
		{AttributesClasses, "", "gold"}: "/apis/storage.k8s.io/v1/volumeattributesclasses?fieldSelector=metadata.name%3Dgold",
	} {
		if got := c.get(ref, metav1.ListOptions{}).URL().RequestURI(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// TestWatch verifies that a watch is one request with the token, and reads what the API server sends.
func TestWatch(t *testing.T) {
	c := newTestClient(t, func(w http.ResponseWriter, r *http.Request) {
		if got := r.Header.Get("Authorization"); got != "Bearer t" {
			t.Errorf("authorization %q", got)
		}
		for key, want := range map[string]string{"watch": "true", "resourceVersion": "7", "allowWatchBookmarks": "true", "fieldSelector": "metadata.name=a"} {
			if got := r.URL.Query().Get(key); got != want {
				t.Errorf("%s: %q, want %q", key, got, want)
			}
		}
		_, _ = w.Write(frames(t, watch.Event{Type: watch.Modified, Object: newClaim("wbps=1Mi")}))
	})
	events, err := c.Watch(t.Context(), claimRef("a"), "7")
	if err != nil {
		t.Fatal(err)
	}
	defer events.Close()
	if e, err := events.Next(); err != nil || e.Type != watch.Modified {
		t.Errorf("%v, %v", e.Type, err)
	}
	if _, err := events.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("at the end: %v", err)
	}
}

// TestNoAnswer verifies that requests that are refused, or whose connection ends, fail.
func TestNoAnswer(t *testing.T) {
	for name, answer := range map[string]http.HandlerFunc{
		"forbidden": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) },
		"ended":     func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	} {
		t.Run(name, func(t *testing.T) {
			c := newTestClient(t, answer)
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second) // client-go tries again for longer
			defer cancel()
			none := func(runtime.Object) {}
			_, listErr := c.List(ctx, claimRef("a"), none)
			_, watchErr := c.Watch(ctx, claimRef("a"), "")
			_, podsErr := c.List(ctx, Ref{Kind: Pods}, none)
			_, podsWatchErr := c.Watch(ctx, Ref{Kind: Pods}, "")
			for i, err := range []error{listErr, watchErr, podsErr, podsWatchErr} {
				if err == nil {
					t.Errorf("request %d has succeeded", i)
				}
			}
		})
	}
}

// FuzzEvents verifies that the part does not crash on any answer: it returns an event or an error.
func FuzzEvents(f *testing.F) {
	c := newTestClient(f, nil)
	whole := frames(f, watch.Event{Type: watch.Added, Object: newClaim("wbps=1Mi")}, watch.Event{Type: "NEW", Object: newClaim("x")})
	f.Add(whole)
	f.Add(whole[:30])
	f.Add([]byte{0, 0, 0, 1, 8})
	f.Fuzz(func(t *testing.T, data []byte) {
		e := reading(c, data)
		for range 1 + len(data)/4 {
			event, err := e.Next()
			if err != nil {
				return
			}
			kept(event.Object) // whatever it is
		}
		t.Error("the events do not end")
	})
}
