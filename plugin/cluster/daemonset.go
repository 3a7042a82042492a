package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	"k8s.io/client-go/rest"
)

// awaitInterval is the time between two looks at a DaemonSet.
const awaitInterval = time.Second

// maxDaemonSet bounds what is read of an answer. The API server stores no object of more than 3 MiB.
const maxDaemonSet = 4 << 20

// DaemonSet is an object of the API server.
type DaemonSet struct {
	transport *http.Client
	url       string
	name      string // NAMESPACE/NAME
	agent     string
}

// NewDaemonSet returns an object, without asking for it.
func NewDaemonSet(s Server, namespace, name string) (*DaemonSet, error) {
	config := s.config()
	transport, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("client of the API server: %w", err)
	}
	url := fmt.Sprintf("%s/apis/apps/v1/namespaces/%s/daemonsets/%s", config.Host, namespace, name)
	return &DaemonSet{transport: transport, url: url, name: namespace + "/" + name, agent: s.Agent}, nil
}

// Await waits until each pod of the DaemonSet is ready. It tells changed what it waits for, each time that this
// changes. It tries again after errors, and ends with an error only with ctx.
func (d *DaemonSet) Await(ctx context.Context, changed func(state string)) error {
	ticker := time.NewTicker(awaitInterval)
	defer ticker.Stop()
	last := ""
	for {
		state, ready, err := d.read(ctx)
		if err != nil {
			state = err.Error()
		}
		if state != last && ctx.Err() == nil {
			changed(state)
			last = state
		}
		if ready {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for DaemonSet %s: %s: %w", d.name, last, context.Cause(ctx))
		case <-ticker.C:
		}
	}
}

// Delete deletes the DaemonSet. Its pods end after that.
func (d *DaemonSet) Delete(ctx context.Context) error {
	if _, err := d.request(ctx, http.MethodDelete); err != nil {
		return fmt.Errorf("delete DaemonSet %s: %w", d.name, err)
	}
	return nil
}

// request sends a request about the object, and returns the answer to it.
func (d *DaemonSet) request(ctx context.Context, method string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, d.url, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("User-Agent", d.agent)
	request.Header.Set("Accept", "application/json")
	answer, err := d.transport.Do(request)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	data, err := io.ReadAll(io.LimitReader(answer.Body, maxDaemonSet))
	if err != nil {
		return nil, err
	}
	if answer.StatusCode != http.StatusOK {
		var status struct{ Message string }
		_ = json.Unmarshal(data, &status) // an answer of a proxy has none
		return nil, fmt.Errorf("%s: %s", answer.Status, status.Message)
	}
	return data, nil
}

// read asks how many pods are ready.
func (d *DaemonSet) read(ctx context.Context) (state string, ready bool, err error) {
	data, err := d.request(ctx, http.MethodGet)
	if err != nil {
		return "", false, err
	}
	var set struct {
		Metadata struct{ Generation int64 }
		Status   struct {
			ObservedGeneration                  int64
			DesiredNumberScheduled, NumberReady int32
		}
	}
	switch err := json.Unmarshal(data, &set); {
	case err != nil:
		return "", false, fmt.Errorf("read the answer of the API server: %w", err)
	case set.Metadata.Generation == 0 || set.Status.ObservedGeneration < set.Metadata.Generation:
		return "no pods yet", false, nil // the controller has not counted the nodes
	}
	state = fmt.Sprintf("%d of %d pods ready", set.Status.NumberReady, set.Status.DesiredNumberScheduled)
	return state, set.Status.NumberReady >= set.Status.DesiredNumberScheduled, nil
}
