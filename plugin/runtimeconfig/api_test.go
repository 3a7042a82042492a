package runtimeconfig

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/containerd/containerd/api/services/introspection/v1"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nri-blkio/nri-blkio/blkio/hostfs"
	"github.com/nri-blkio/nri-blkio/plugin/inventory"
)

// runtime is a containerd with fixed answers.
type runtime struct {
	cri.UnimplementedRuntimeServiceServer
	cri.UnimplementedImageServiceServer
	introspection.UnimplementedIntrospectionServer

	config   string // in the status of the CRI
	images   string // the root of the default snapshotter
	plugins  []*introspection.Plugin
	err      error // of each call
	hang     bool  // until the caller gives up
	asked    atomic.Int32
	noImages bool
}

func (r *runtime) reply(ctx context.Context) error {
	r.asked.Add(1)
	if r.hang {
		<-ctx.Done()
	}
	return r.err
}

func (r *runtime) Status(ctx context.Context, req *cri.StatusRequest) (*cri.StatusResponse, error) {
	if !req.GetVerbose() {
		return nil, errors.New("not verbose: no config")
	}
	return &cri.StatusResponse{Info: map[string]string{"config": r.config}}, r.reply(ctx)
}

func (r *runtime) ImageFsInfo(ctx context.Context, _ *cri.ImageFsInfoRequest) (*cri.ImageFsInfoResponse, error) {
	if r.noImages {
		return &cri.ImageFsInfoResponse{}, nil
	}
	fs := &cri.FilesystemUsage{FsId: &cri.FilesystemIdentifier{Mountpoint: r.images}}
	return &cri.ImageFsInfoResponse{ImageFilesystems: []*cri.FilesystemUsage{fs}}, r.reply(ctx)
}

func (r *runtime) Plugins(ctx context.Context, _ *introspection.PluginsRequest) (*introspection.PluginsResponse, error) {
	return &introspection.PluginsResponse{Plugins: r.plugins}, r.reply(ctx)
}

// snapshotter is a plugin of containerd with a root, or without.
func snapshotter(id, root string) *introspection.Plugin {
	p := &introspection.Plugin{Type: snapshotters, ID: id}
	if root != "" {
		p.Exports = map[string]string{"root": root}
	}
	return p
}

// serve answers at a socket of a node, whose path has to be short.
func (r *runtime) serve(t *testing.T, root, socket string) { serve(t, r, r, root, socket) }

func (l *listing) serve(t *testing.T, root, socket string) { serve(t, l.runtime, l, root, socket) }

func serve(t *testing.T, r *runtime, service cri.RuntimeServiceServer, root, socket string) {
	t.Helper()
	file := filepath.Join(root, socket)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", file)
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	cri.RegisterRuntimeServiceServer(s, service)
	cri.RegisterImageServiceServer(s, r)
	introspection.RegisterIntrospectionServer(s, r)
	go func() { _ = s.Serve(l) }()
	t.Cleanup(s.Stop)
}

// newNode makes a node's directory of files, with a path that leaves room for sockets'.
func newNode(t *testing.T, files ...string) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "n")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	for _, f := range files {
		name, text, _ := strings.Cut(f, "=")
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

const (
	socket     = "/run/containerd/containerd.sock"
	status1    = `{"containerd":{"snapshotter":"native","defaultRuntimeName":"runc","runtimes":{"runc":{"snapshotter":""}}},"cni":{}}`
	status2    = `{"containerd":{"defaultRuntimeName":"kata","runtimes":{"kata":{"snapshotter":"devmapper"},"crun":{"snapshotter":"native"},"runc":{"snapshotter":""}}}}`
	statusNone = `{"containerd":{}}`
)

func TestAnswer(t *testing.T) {
	dir := func(d string) inventory.Layer { return inventory.Layer{Dir: d} }
	loaded := []*introspection.Plugin{
		snapshotter("overlayfs", "/o"), snapshotter("native", "/n"), snapshotter("devmapper", "/d"), snapshotter("proxied", ""),
		{Type: snapshotters, ID: "btrfs", InitErr: &status.Status{Code: 9}},
		{Type: "io.containerd.content.v1", ID: "content", Exports: map[string]string{"root": "/c"}},
	}
	thin := because("devmapper", "gives each container a thin device of its own")
	for _, tt := range []struct {
		name    string
		runtime *runtime
		want    inventory.Layers
		err     string
	}{
		{name: "containerd 1 names the snapshotter", runtime: &runtime{config: status1}, want: inventory.Layers{Default: dir("/n"), Handlers: byHandler{}}},
		{name: "containerd 2 names its root", runtime: &runtime{config: statusNone, images: "/o"}, want: inventory.Layers{Default: dir("/o"), Handlers: byHandler{}}},
		{
			name: "each handler its own", runtime: &runtime{config: status2, images: "/o"},
			want: inventory.Layers{Default: dir("/o"), Handlers: byHandler{"kata": thin, "": thin, "crun": dir("/n")}},
		},
		{
			name: "a root that containerd made up", runtime: &runtime{config: statusNone, images: "/x/io.containerd.snapshotter.v1.proxied"},
			want: inventory.Layers{Default: because("proxied", proxySilent), Handlers: byHandler{}},
		},
		{
			name: "not loaded", runtime: &runtime{config: `{"containerd":{"snapshotter":"btrfs"}}`},
			want: inventory.Layers{Default: because("btrfs", "is not loaded"), Handlers: byHandler{}},
		},
		{name: "a root of none", runtime: &runtime{config: statusNone, images: "/c"}, err: `containerd has no snapshotter with root "/c"`},
		{name: "no filesystem", runtime: &runtime{config: statusNone, noImages: true}, err: "CRI ImageFsInfo: no filesystem"},
		{name: "no config", runtime: &runtime{}, err: "CRI Status: parse config"},
		{name: "refused", runtime: &runtime{config: status1, err: grpcstatus.Error(codes.Unavailable, "server is not initialized yet")}, err: "CRI Status: Unavailable: server is not initialized yet"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			node := newNode(t)
			tt.runtime.plugins = loaded
			tt.runtime.serve(t, node, socket)
			got, err := askSocket(t.Context(), hostfs.Root(node), socket, containerdConfig{})
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("got %v, want %s", err, tt.err)
				}
				return
			}
			if err != nil || !got.Equal(tt.want) {
				t.Errorf("got %+v, %v, want %+v", got, err, tt.want)
			}
		})
	}
}

// TestErofsSize covers erofs. No API reports whether it has a device for each container.
func TestErofsSize(t *testing.T) {
	node := newNode(t, "etc/containerd/config.toml=version = 3\n[plugins.'io.containerd.snapshotter.v1.erofs']\ndefault_size = '1GiB'\n", "e/x=")
	r := runtime{config: `{"containerd":{"snapshotter":"erofs"}}`, plugins: []*introspection.Plugin{snapshotter("erofs", "/e")}}
	r.serve(t, node, socket)
	c := Config{HostRoot: node}
	got, err := c.Layers(t.Context(), "containerd", "v2.4.2")
	if want := because("erofs", "gives each container a loop device of its own"); err != nil || got.Default != want {
		t.Errorf("got %+v, %v, want %+v", got.Default, err, want)
	}
}

// TestAnswerBeatsFiles verifies that the answer of containerd counts if it runs with another configuration than
// the one at the usual place.
func TestAnswerBeatsFiles(t *testing.T) {
	const config = "etc/containerd/config.toml=version = 3\nroot = '/files'\n"
	const byFiles, byAPI = "/files/io.containerd.snapshotter.v1.overlayfs", "/api"
	for _, tt := range []struct {
		name, endpoint, runtime string
		r                       *runtime
		want                    string
		err                     bool
		asked                   bool
	}{
		{name: "it answers", r: &runtime{}, want: byAPI, asked: true},
		{name: "by its address", endpoint: "unix://" + socket, r: &runtime{}, want: byAPI, asked: true},
		{name: "not to be asked", endpoint: NoEndpoint, r: &runtime{}, want: byFiles},
		{name: "it hangs", r: &runtime{hang: true}, want: byFiles, err: true, asked: true},
		{name: "it fails", r: &runtime{err: grpcstatus.Error(codes.Unimplemented, "no CRI")}, want: byFiles, err: true, asked: true},
		{name: "nothing is there", want: byFiles, err: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			node := newNode(t, config, byFiles+"/x=", byAPI+"/x=")
			if tt.r != nil {
				tt.r.config, tt.r.plugins = `{"containerd":{"snapshotter":"native"}}`, []*introspection.Plugin{snapshotter("native", byAPI)}
				tt.r.serve(t, node, socket)
			}
			c := Config{HostRoot: node, Endpoint: tt.endpoint}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if tt.r != nil && tt.r.hang {
				go func() { // until it is asked
					for tt.r.asked.Load() == 0 && ctx.Err() == nil {
						time.Sleep(time.Millisecond)
					}
					cancel()
				}()
			}
			got, err := c.Layers(ctx, "containerd", "v2.4.2")
			if got.Default.Dir != tt.want || (err != nil) != tt.err {
				t.Errorf("got %+v, %v, want %s", got.Default, err, tt.want)
			}
			if tt.r != nil && (tt.r.asked.Load() > 0) != tt.asked {
				t.Errorf("asked %d times", tt.r.asked.Load())
			}
		})
	}
}

// TestDistributions verifies that the files and sockets of k3s and others are found at their own places.
func TestDistributions(t *testing.T) {
	const docker = "etc/containerd/config.toml=disabled_plugins = ['cri']\n"
	none := &runtime{err: grpcstatus.Error(codes.Unimplemented, "unknown service runtime.v1.RuntimeService")}
	for _, tt := range []struct {
		name, config, socket, root string
	}{
		{"k3s", "/var/lib/rancher/k3s/agent/etc/containerd/config.toml", "/run/k3s/containerd/containerd.sock", "/var/lib/rancher/k3s/agent/containerd"},
		{"RKE2", "/var/lib/rancher/rke2/agent/etc/containerd/config.toml", "/run/k3s/containerd/containerd.sock", "/var/lib/rancher/rke2/agent/containerd"},
		{"k0s", "/etc/k0s/containerd.toml", "/run/k0s/containerd.sock", "/var/lib/k0s/containerd"},
		{"containerd", "/etc/containerd/config.toml", socket, "/var/lib/containerd"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := tt.root + "/io.containerd.snapshotter.v1.overlayfs"
			want := inventory.Layer{Dir: dir}
			get := func(node, containerd string) (inventory.Layer, error) {
				c := Config{HostRoot: node, Containerd: containerd}
				l, err := c.Layers(t.Context(), "containerd", "v2.0.5-k3s1")
				return l.Default, err
			}

			files := newNode(t, tt.config+"=version = 3\n", dir+"/x=")
			if got, err := get(files, ""); got != want || !errors.Is(err, ErrNoSocket) {
				t.Errorf("by files alone: %+v, %v", got, err)
			}
			if got, err := get(files, tt.config); got != want || !errors.Is(err, ErrNoSocket) {
				t.Errorf("by the flag: %+v, %v", got, err)
			}

			// Docker's containerd beside it, which serves no Kubernetes.
			both := newNode(t, docker, tt.config+"=version = 3\n", dir+"/x=", "var/lib/containerd/x=")
			r := &runtime{config: statusNone, images: dir, plugins: []*introspection.Plugin{snapshotter("overlayfs", dir)}}
			r.serve(t, both, tt.socket)
			if tt.socket != socket {
				none.serve(t, both, socket)
			}
			if got, err := get(both, ""); got != want || err != nil {
				t.Errorf("beside Docker: %+v, %v", got, err)
			}
			r.err = grpcstatus.Error(codes.Unavailable, "starting")
			if got, err := get(both, ""); got != want || err == nil {
				t.Errorf("beside Docker, by files: %+v, %v", got, err)
			}
		})
	}
}

// TestNoDirectory verifies that a directory that is not there is on no disk, and not on that of the directory
// above it.
func TestNoDirectory(t *testing.T) {
	c := Config{HostRoot: newNode(t, "etc/hostname=x")}
	const dir = "/var/lib/containerd/io.containerd.snapshotter.v1.overlayfs"
	for name, dir := range map[string]string{"containerd": dir, "": dir, "cri-o": "/var/lib/containers/storage/overlay"} {
		got, err := c.Layers(t.Context(), name, "")
		want := inventory.Layer{Reason: "the runtime stores them in " + dir + ", which is not a directory on this node"}
		if err == nil || got.Default != want {
			t.Errorf("%q: %+v, %v, want %+v", name, got.Default, err, want)
		}
	}
	c.HostRoot = newNode(t, "etc/containerd/config.toml=root = \n")
	if got, err := c.Layers(t.Context(), "containerd", ""); err == nil || !strings.Contains(got.Default.Unknown, "parse /etc/containerd/config.toml") {
		t.Errorf("no TOML: %+v, %v", got.Default, err)
	}
}

func TestValidate(t *testing.T) {
	node := newNode(t, "c.toml=version = 3\n")
	for _, tt := range []struct {
		endpoint, containerd, err string
	}{
		{"", "", ""},
		{NoEndpoint, "/c.toml", ""},
		{"/run/x.sock", "", ""},
		{"unix:///run/x.sock", "", ""},
		{"run/x.sock", "", `invalid endpoint "run/x.sock": neither`},
		{"tcp://1.2.3.4", "", "invalid endpoint"},
		{"", "/nope.toml", "read containerd's configuration: open "},
	} {
		c := Config{HostRoot: node, Endpoint: tt.endpoint, Containerd: tt.containerd}
		err := c.Validate()
		if (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%q, %q: %v, want %q", tt.endpoint, tt.containerd, err, tt.err)
		}
	}
}
