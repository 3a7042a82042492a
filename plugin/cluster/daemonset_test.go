package cluster

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// awaitingServer answers each request for a DaemonSet with the next of some answers, and the last one for ever.
func awaitingServer(t *testing.T, answers ...http.HandlerFunc) Server {
	t.Helper()
	asked := 0
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/apis/apps/v1/namespaces/a/daemonsets/b" || r.Header.Get("Authorization") != "Bearer t" || r.Header.Get("User-Agent") != "test" {
			t.Errorf("%s with %v", r.URL, r.Header)
		}
		answers[min(asked, len(answers)-1)](w, r)
		asked++
	}))
	t.Cleanup(server.Close)
	host, port, err := net.SplitHostPort(server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	s := Server{Host: host, Port: port, Dir: t.TempDir(), Agent: "test"}
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	for name, data := range map[string][]byte{"token": []byte("t"), "ca.crt": ca} {
		if err := os.WriteFile(filepath.Join(s.Dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// daemonSetOf answers with a DaemonSet of generation 1.
func daemonSetOf(observed, desired, ready int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"kind": "DaemonSet", "metadata": {"name": "b", "generation": 1}, "status": {"observedGeneration": %d, "desiredNumberScheduled": %d, "numberReady": %d}}`,
			observed, desired, ready)
	}
}

func text(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		fmt.Fprint(w, body)
	}
}

// newDaemonSet returns the object of a server that gives some answers.
func newDaemonSet(t *testing.T, answers ...http.HandlerFunc) *DaemonSet {
	t.Helper()
	d, err := NewDaemonSet(awaitingServer(t, answers...), "a", "b")
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestAwait verifies that the wait goes on after errors, and ends only when the controller has counted the nodes and
// all pods are ready.
func TestAwait(t *testing.T) {
	d := newDaemonSet(t,
		text(http.StatusForbidden, `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "no right"}`),
		text(http.StatusOK, "{"),
		daemonSetOf(0, 0, 0),
		daemonSetOf(1, 2, 1), daemonSetOf(1, 2, 1),
		daemonSetOf(1, 2, 2),
	)
	var states []string
	if err := d.Await(t.Context(), func(state string) { states = append(states, state) }); err != nil {
		t.Fatal(err)
	}
	want := []string{"no right", "read the answer of the API server: unexpected end of JSON input", "no pods yet", "1 of 2 pods ready", "2 of 2 pods ready"}
	if !slices.Equal(states, want) {
		t.Errorf("%q, want %q", states, want)
	}
}

// TestAwaitNoNodes verifies that a DaemonSet for which there is no node is ready.
func TestAwaitNoNodes(t *testing.T) {
	if err := newDaemonSet(t, daemonSetOf(1, 0, 0)).Await(t.Context(), func(string) {}); err != nil {
		t.Error(err)
	}
}

// TestAwaitEnds verifies that the wait ends with its context, with what it waited for, and that nothing begins without a
// certificate.
func TestAwaitEnds(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	end := errors.New("told to end")
	err := newDaemonSet(t, daemonSetOf(1, 3, 2)).Await(ctx, func(string) { cancel(end) })
	if !errors.Is(err, end) || !strings.Contains(err.Error(), "wait for DaemonSet a/b: 2 of 3 pods ready") {
		t.Errorf("%v", err)
	}
	if _, err := NewDaemonSet(Server{Host: "::1", Port: "1", Dir: t.TempDir()}, "a", "b"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without a certificate: %v", err)
	}
}

// TestDelete verifies that the object is deleted, and that a refusal is an error.
func TestDelete(t *testing.T) {
	method := ""
	d := newDaemonSet(t, func(w http.ResponseWriter, r *http.Request) {
		method = r.Method
		fmt.Fprint(w, `{"kind": "Status", "status": "Success"}`)
	}, text(http.StatusForbidden, `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "no right"}`))
	if err := d.Delete(t.Context()); err != nil || method != http.MethodDelete {
		t.Errorf("%s: %v", method, err)
	}
	if err := d.Delete(t.Context()); err == nil || err.Error() != "delete DaemonSet a/b: no right" {
		t.Errorf("%v", err)
	}
}
