// Package cri creates pods by a container runtime's CRI socket, with the cgroup parents,
// annotations and labels that the kubelet sends. It does not depend on the plugin.
package cri

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// callTimeout bounds one call. An emulated node takes seconds for what takes a
// tenth of one elsewhere.
const callTimeout = 90 * time.Second

// Client talks to one runtime.
type Client struct {
	conn    *grpc.ClientConn
	runtime runtimeapi.RuntimeServiceClient
	driver  string
	scope   string // what the name of a container's cgroup begins with
}

// Parameter returns a parameter that the node was booted with: "engine", "runtime" or "driver". It is "" if
// this is not a node.
func Parameter(name string) string {
	cmdline, _ := os.ReadFile("/proc/cmdline") // which is always there
	for word := range strings.FieldsSeq(string(cmdline)) {
		if value, ok := strings.CutPrefix(word, "nri_node."+name+"="); ok {
			return value
		}
	}
	return ""
}

// IsCRIO reports whether the node's engine is CRI-O.
func IsCRIO() bool { return strings.HasPrefix(Parameter("engine"), "crio-") }

// Dial returns a client for the node on which it runs. It connects with the first call.
func Dial() (*Client, error) {
	c := &Client{driver: Parameter("driver")}
	socket := "unix:///run/containerd/containerd.sock"
	if IsCRIO() {
		socket, c.scope = "unix:///run/crio/crio.sock", "crio-"
	}
	if c.driver == "systemd" && !IsCRIO() {
		c.scope = "cri-containerd-"
	}
	// A restarted runtime must be found again at once, not after grpc's
	// backoff of up to two minutes.
	conn, err := grpc.NewClient(socket,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithIdleTimeout(0),
		grpc.WithConnectParams(grpc.ConnectParams{MinConnectTimeout: 5 * time.Second}),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
	if err != nil {
		return nil, fmt.Errorf("dial CRI: %w", err)
	}
	c.conn, c.runtime = conn, runtimeapi.NewRuntimeServiceClient(conn)
	return c, nil
}

// Close ends the connection.
func (c *Client) Close() error { return c.conn.Close() }

// Ready reports an error until the runtime answers.
func (c *Client) Ready(ctx context.Context) error {
	_, err := c.runtime.Version(ctx, &runtimeapi.VersionRequest{})
	return err
}

// Running lists the running containers with the label, by container name.
func (c *Client) Running(ctx context.Context, label, value string) (map[string]*Container, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	list, err := c.runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{
		State:         &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING},
		LabelSelector: map[string]string{label: value},
	}})
	if err != nil {
		return nil, fmt.Errorf("list containers: %w", err)
	}
	found := make(map[string]*Container)
	for _, item := range list.Containers {
		k := &Container{client: c, ID: item.Id, Name: item.Metadata.Name}
		pod, err := c.podCgroup(ctx, item.PodSandboxId)
		if err != nil {
			return nil, err
		}
		k.Cgroup = path.Join(pod, c.leaf(k.ID))
		found[k.Name] = k
	}
	return found, nil
}

// RemovePods stops and removes every pod of the node.
func (c *Client) RemovePods(ctx context.Context) error {
	if err := c.removeSandboxes(ctx, nil); err != nil {
		return err
	}
	if c.driver == "cgroupfs" {
		return nil // an empty directory disturbs no other pod
	}
	return stopSlices(ctx, "kubepods-*-pod*.slice")
}

// RemovePod stops and removes the sandboxes of the best-effort pod with the UID, including
// those whose ID this client does not know.
func (c *Client) RemovePod(ctx context.Context, uid string) error {
	filter := &runtimeapi.PodSandboxFilter{LabelSelector: map[string]string{"io.kubernetes.pod.uid": uid}}
	if err := c.removeSandboxes(ctx, filter); err != nil {
		return err
	}
	return c.removeCgroup(ctx, c.podParent(BestEffort, uid))
}

// removeSandboxes tries what fails again until ctx ends, since a container may be on its
// way while its pod goes, and the runtime may restart.
func (c *Client) removeSandboxes(ctx context.Context, filter *runtimeapi.PodSandboxFilter) error {
	for {
		err := c.tryRemoveSandboxes(ctx, filter)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("remove pods: %w", err)
		case <-time.After(time.Second):
		}
	}
}

// whileBusy repeats a call that the runtime has ended by a deadline of its own, as the kubelet does. containerd gives a shim 2 s for the
// state of a task ("io.containerd.timeout.task.state" in plugins/services/tasks/local.go), which a busy machine exceeds.
func whileBusy(ctx context.Context, call func() error) error {
	for {
		err := call()
		if status.Code(err) != codes.DeadlineExceeded {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(time.Second):
		}
	}
}

// tryRemoveSandboxes leaves time for another attempt: CRI-O waits for a container whose creation was canceled, which
// it does not list, as long as the caller does, and then kills it.
func (c *Client) tryRemoveSandboxes(ctx context.Context, filter *runtimeapi.PodSandboxFilter) error {
	list, err := c.runtime.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{Filter: filter})
	if err != nil {
		return fmt.Errorf("list pod sandboxes: %w", err)
	}
	var errs []error
	for _, item := range list.Items {
		ctx, cancel := context.WithTimeout(ctx, callTimeout/3)
		errs = append(errs, c.removeSandbox(ctx, item.Id))
		cancel()
	}
	return errors.Join(errs...)
}

// removeSandbox needs no StopContainer: the runtime kills the containers of a sandbox that
// stops, without grace. As with the kubelet, a sandbox is removed only after all its containers:
// containerd 2.4.2 deadlocks if it removes them itself while an NRI plugin registers
// (docs/reference/quirks.md). So an error ends it.
func (c *Client) removeSandbox(ctx context.Context, id string) error {
	if _, err := c.runtime.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: id}); err != nil {
		return err
	}
	list, err := c.runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{PodSandboxId: id}})
	if err != nil {
		return err
	}
	for _, item := range list.Containers {
		if _, err := c.runtime.RemoveContainer(ctx, &runtimeapi.RemoveContainerRequest{ContainerId: item.Id}); err != nil {
			return err
		}
	}
	_, err = c.runtime.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: id})
	return err
}

// podCgroup asks for the cgroup of a sandbox that another client has made.
func (c *Client) podCgroup(ctx context.Context, sandbox string) (string, error) {
	list, err := c.runtime.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{
		Filter: &runtimeapi.PodSandboxFilter{Id: sandbox},
	})
	if err != nil {
		return "", fmt.Errorf("list pod sandboxes: %w", err)
	}
	if len(list.Items) != 1 {
		return "", fmt.Errorf("%d sandboxes with the ID %s", len(list.Items), sandbox)
	}
	pod := list.Items[0].Metadata
	for _, qos := range []string{BestEffort, Burstable, Guaranteed} {
		dir := c.podParent(qos, pod.Uid)
		if exists(dir) {
			return dir, nil // the CRI does not say of which class a pod is
		}
	}
	return "", fmt.Errorf("pod %s/%s: no cgroup of uid %s", pod.Namespace, pod.Name, pod.Uid)
}

// The QoS classes, as they are part of cgroup paths.
const (
	BestEffort = "besteffort"
	Burstable  = "burstable"
	Guaranteed = "guaranteed"
)

// podParent is the path of a pod's cgroup below the cgroup root, as the kubelet
// (pkg/kubelet/cm) names it.
func (c *Client) podParent(qos, uid string) string {
	if c.driver == "cgroupfs" {
		if qos == Guaranteed {
			qos = "" // such pods are beside the other classes
		}
		return path.Join("/kubepods", qos, "pod"+uid)
	}
	// A dash is a step down in a slice's name.
	parts := []string{"kubepods"}
	if qos != Guaranteed {
		parts = append(parts, qos)
	}
	parts = append(parts, "pod"+strings.ReplaceAll(uid, "-", "_"))
	dir := "/"
	for i := range parts {
		dir = path.Join(dir, strings.Join(parts[:i+1], "-")+".slice")
	}
	return dir
}

// leaf is the directory of a container below its pod's.
func (c *Client) leaf(id string) string {
	if c.driver == "cgroupfs" {
		return c.scope + id
	}
	return c.scope + id + ".scope"
}
