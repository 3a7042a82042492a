package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"

	"github.com/nri-blkio/nri-blkio/plugin/reminder"
)

// awaitInterval is the time between two looks at a DaemonSet.
const awaitInterval = time.Second

// DaemonSet is an object of the API server.
type DaemonSet struct {
	client          *rest.RESTClient
	namespace, name string
}

// NewDaemonSet returns an object, without asking for it.
func NewDaemonSet(s Server, namespace, name string) (*DaemonSet, error) {
	scheme := runtime.NewScheme() // of the API server's errors
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	config := s.config()
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	client, err := rest.UnversionedRESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("client of the API server: %w", err)
	}
	return &DaemonSet{client, namespace, name}, nil
}

// Await waits until each pod of the DaemonSet is ready. It tells changed what it waits for, each time that this
// changes. It tries again after errors, and ends with an error only with ctx.
func (d *DaemonSet) Await(ctx context.Context, changed func(state string)) error {
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
		if reminder.Sleep(ctx, awaitInterval); ctx.Err() != nil {
			return fmt.Errorf("wait for DaemonSet %s/%s: %s: %w", d.namespace, d.name, last, context.Cause(ctx))
		}
	}
}

// Delete deletes the DaemonSet. Its pods end after that.
func (d *DaemonSet) Delete(ctx context.Context) error {
	if _, err := d.request(ctx, http.MethodDelete); err != nil {
		return fmt.Errorf("delete DaemonSet %s/%s: %w", d.namespace, d.name, err)
	}
	return nil
}

func (d *DaemonSet) request(ctx context.Context, method string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	answer := d.client.Verb(method).AbsPath("/apis/apps/v1/namespaces", d.namespace, "daemonsets", d.name).Do(ctx)
	if err := answer.Error(); err != nil { // which has the API server's message, that of Raw has not
		return nil, err
	}
	return answer.Raw()
}

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
