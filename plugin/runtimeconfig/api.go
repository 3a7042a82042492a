package runtimeconfig

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"path"
	"slices"
	"strings"

	"github.com/containerd/containerd/api/services/introspection/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nri-blkio/nri-blkio/blkio/hostfs"
	"github.com/nri-blkio/nri-blkio/plugin/inventory"
)

// answer is the answer of containerd about itself.
type answer struct {
	config   criConfig
	defaults string            // the root of the default snapshotter
	roots    map[string]string // of each snapshotter that is loaded; "" where it exports none
	files    containerdConfig  // for the facts that no API reports
}

// criConfig is the part that matters here of "config" in the verbose status of
// containerd's CRI. Source: Status in containerd's internal/cri/server (2) and
// pkg/cri/server (1.7), with Config in the package config beside it.
type criConfig struct {
	Containerd struct {
		Snapshotter string `json:"snapshotter"` // containerd 1 only
		DefaultName string `json:"defaultRuntimeName"`
		Runtimes    map[string]struct {
			Snapshotter string `json:"snapshotter"`
		} `json:"runtimes"`
	} `json:"containerd"`
}

func askSocket(ctx context.Context, host hostfs.Root, socket string, known containerdConfig) (inventory.Layers, error) {
	conn, err := dial(host, socket)
	if err != nil {
		return inventory.Layers{}, err
	}
	defer conn.Close()
	a, err := askAll(ctx, conn)
	if err != nil {
		return inventory.Layers{}, err
	}
	a.files = known
	return a.layers()
}

func askAll(ctx context.Context, conn grpc.ClientConnInterface) (*answer, error) {
	a := answer{roots: map[string]string{}}
	state, err := cri.NewRuntimeServiceClient(conn).Status(ctx, &cri.StatusRequest{Verbose: true})
	if err != nil {
		return nil, callError("CRI Status", err)
	}
	if err := json.Unmarshal([]byte(state.GetInfo()["config"]), &a.config); err != nil {
		return nil, fmt.Errorf("CRI Status: parse config: %w", err)
	}
	if a.config.Containerd.Snapshotter == "" {
		// containerd 2 leaves it out of the status, and puts its root first here.
		images, err := cri.NewImageServiceClient(conn).ImageFsInfo(ctx, &cri.ImageFsInfoRequest{})
		if err != nil {
			return nil, callError("CRI ImageFsInfo", err)
		}
		if len(images.GetImageFilesystems()) == 0 {
			return nil, errors.New("CRI ImageFsInfo: no filesystem")
		}
		a.defaults = images.GetImageFilesystems()[0].GetFsId().GetMountpoint()
	}
	plugins, err := introspection.NewIntrospectionClient(conn).Plugins(ctx,
		&introspection.PluginsRequest{Filters: []string{"type==" + snapshotters}})
	if err != nil {
		return nil, callError("introspection", err)
	}
	for _, p := range plugins.GetPlugins() {
		if p.GetType() == snapshotters && p.GetInitErr() == nil {
			a.roots[p.GetID()] = p.GetExports()["root"]
		}
	}
	return &a, nil
}

// callError returns an error of gRPC without the parts that help only developers of gRPC.
func callError(call string, err error) error {
	s := status.Convert(err)
	return fmt.Errorf("%s: %s: %s", call, s.Code(), s.Message())
}

func (a *answer) layers() (inventory.Layers, error) {
	c := &a.config.Containerd
	name := c.Snapshotter
	if name == "" {
		if name = a.snapshotterAt(a.defaults); name == "" {
			return inventory.Layers{}, fmt.Errorf("containerd has no snapshotter with root %q", a.defaults)
		}
	}
	handlers := map[string]string{}
	for handler, r := range c.Runtimes {
		handlers[handler] = r.Snapshotter
	}
	return layersOf(name, c.DefaultName, handlers, a.layer), nil
}

// snapshotterAt returns the snapshotter with a root. For one that exports none,
// containerd makes up a directory with its name.
//
// Source: snapshotRoot in containerd's plugins/cri/images.
func (a *answer) snapshotterAt(root string) string {
	for name, at := range a.roots {
		if at != "" && at == root {
			return name
		}
	}
	name, ok := strings.CutPrefix(path.Base(root), snapshotters+".")
	if _, loaded := a.roots[name]; ok && loaded {
		return name
	}
	return ""
}

func (a *answer) layer(name string) inventory.Layer {
	own := section(a.files.plugins, snapshotters+"."+name)
	root, loaded := a.roots[name]
	reason := noDirectory(name, own)
	switch {
	case reason != "":
	case !loaded:
		reason = "is not loaded"
	case root == "":
		reason = proxySilent
	default:
		return inventory.Layer{Dir: root}
	}
	return because(name, reason)
}

// Pod is a pod that the runtime has one or more sandboxes of.
type Pod struct {
	Namespace, Name, UID string
	Containers           map[string]string // names by ID, without the sandbox
	Labels               map[string]string // as the pod's sandbox was created
}

// Pods asks the runtime for its pods and their containers. With NoEndpoint it returns an error.
func (c *Config) Pods(ctx context.Context) ([]Pod, error) {
	if c.Endpoint == NoEndpoint {
		return nil, ErrNoSocket
	}
	ctx, cancel := context.WithTimeout(ctx, askDeadline)
	defer cancel()
	var out []Pod
	err := c.eachSocket(append(containerdSockets(), crioSocket), func(socket string) error {
		conn, err := dial(c.host(), socket)
		if err != nil {
			return err
		}
		defer conn.Close()
		out, err = listPods(ctx, cri.NewRuntimeServiceClient(conn))
		return err
	})
	return out, err
}

func listPods(ctx context.Context, runtime cri.RuntimeServiceClient) ([]Pod, error) {
	sandboxes, err := runtime.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{})
	if err != nil {
		return nil, callError("CRI ListPodSandbox", err)
	}
	containers, err := runtime.ListContainers(ctx, &cri.ListContainersRequest{})
	if err != nil {
		return nil, callError("CRI ListContainers", err)
	}
	var out []Pod
	byUID, bySandbox := map[string]map[string]string{}, map[string]map[string]string{}
	for _, s := range sandboxes.GetItems() {
		m := s.GetMetadata()
		if byUID[m.GetUid()] == nil {
			byUID[m.GetUid()] = map[string]string{}
			out = append(out, Pod{m.GetNamespace(), m.GetName(), m.GetUid(), byUID[m.GetUid()], s.GetLabels()})
		}
		bySandbox[s.GetId()] = byUID[m.GetUid()] // a sandbox that ended stays for a while beside the one that replaces it
	}
	for _, c := range containers.GetContainers() {
		if names := bySandbox[c.GetPodSandboxId()]; names != nil {
			names[c.GetId()] = c.GetMetadata().GetName()
		}
	}
	if len(out) == 0 {
		return nil, errors.New("the runtime has no pods")
	}
	return out, nil
}

// maxAnswer is how many bytes of an answer of the runtime are read: as many as the kubelet reads. A sandbox has the annotations of its
// pod, up to 256 KiB.
const maxAnswer = 16 << 20

// dial connects to a socket of the node. The socket's mode has to let us write; that its filesystem is mounted read-only does
// not matter (sb_permission in fs/namei.c).
func dial(host hostfs.Root, socket string) (*grpc.ClientConn, error) {
	file, err := host.Resolve(socket)
	if err != nil {
		return nil, err
	}
	connect := func(ctx context.Context, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", file)
	}
	return grpc.NewClient("passthrough:///runtime", grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(connect),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer)))
}

func containerdSockets() (out []string) {
	for _, l := range locations() {
		if !slices.Contains(out, l.socket) {
			out = append(out, l.socket)
		}
	}
	return out
}
