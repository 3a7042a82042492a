package runtimeconfig

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// listing is a runtime with pods.
type listing struct {
	*runtime
	sandboxes  []*cri.PodSandbox
	containers []*cri.Container
}

func (l *listing) ListPodSandbox(ctx context.Context, _ *cri.ListPodSandboxRequest) (*cri.ListPodSandboxResponse, error) {
	return &cri.ListPodSandboxResponse{Items: l.sandboxes}, l.reply(ctx)
}

func (l *listing) ListContainers(ctx context.Context, _ *cri.ListContainersRequest) (*cri.ListContainersResponse, error) {
	return &cri.ListContainersResponse{Containers: l.containers}, l.reply(ctx)
}

func sandbox(id, name, annotation string) *cri.PodSandbox {
	return &cri.PodSandbox{
		Id: id, Metadata: &cri.PodSandboxMetadata{Namespace: "prod", Name: name, Uid: "uid-" + name},
		Annotations: map[string]string{"note": annotation}, Labels: map[string]string{"app": name},
	}
}

func containerIn(sandbox, id, name string) *cri.Container {
	return &cri.Container{Id: id, PodSandboxId: sandbox, Metadata: &cri.ContainerMetadata{Name: name}}
}

// TestPods verifies that a pod has the containers of all of its sandboxes, that annotations of pods do not make the answer too long, and
// that a runtime without pods is not the kubelet's.
func TestPods(t *testing.T) {
	node := newNode(t)
	(&listing{runtime: &runtime{}}).serve(t, node, socket)
	full := &listing{runtime: &runtime{}, containers: []*cri.Container{
		containerIn("new", "c1", "db"), containerIn("old", "c0", "db"), containerIn("none", "c9", "x"),
	}}
	full.sandboxes = []*cri.PodSandbox{sandbox("new", "db-0", ""), sandbox("old", "db-0", "")}
	for range 17 { // above the 4 MiB of gRPC
		full.sandboxes = append(full.sandboxes, sandbox("big", "big", strings.Repeat("x", 256<<10)))
	}
	full.serve(t, node, crioSocket)
	got, err := (&Config{HostRoot: node}).Pods(t.Context())
	want := []Pod{
		{"prod", "db-0", "uid-db-0", map[string]string{"c0": "db", "c1": "db"}, map[string]string{"app": "db-0"}},
		{"prod", "big", "uid-big", map[string]string{}, map[string]string{"app": "big"}},
	}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v, -want, +got:\n%s", err, diff)
	}
	if _, err := (&Config{HostRoot: node, Endpoint: NoEndpoint}).Pods(t.Context()); !errors.Is(err, ErrNoSocket) {
		t.Errorf("without an endpoint: %v", err)
	}
	if _, err := (&Config{HostRoot: node, Endpoint: socket}).Pods(t.Context()); err == nil || !strings.Contains(err.Error(), "no pods") {
		t.Errorf("a runtime without pods: %v", err)
	}
}

// TestPodsDeadline verifies that a runtime that does not answer is given up, and that an answer that is too long is an error.
func TestPodsDeadline(t *testing.T) {
	for name, l := range map[string]*listing{
		"silent":   {runtime: &runtime{hang: true}},
		"too long": {runtime: &runtime{}, sandboxes: []*cri.PodSandbox{sandbox("a", "a", strings.Repeat("x", maxAnswer))}},
	} {
		node := newNode(t)
		l.serve(t, node, socket)
		begin := time.Now()
		if pods, err := (&Config{HostRoot: node}).Pods(t.Context()); err == nil || time.Since(begin) > 10*askDeadline {
			t.Errorf("%s: %d pods after %s, %v", name, len(pods), time.Since(begin), err)
		}
	}
}
