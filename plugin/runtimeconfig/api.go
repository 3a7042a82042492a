package runtimeconfig

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/containerd/containerd/api/services/introspection/v1"
	"google.golang.org/grpc"
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

// askSocket asks containerd at a socket of the node.
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
