package plugin

import (
	"context"
	"io"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"

	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/blkio/storage"
	"github.com/nri-blkio/nri-blkio/plugin/inventory"
	"github.com/nri-blkio/nri-blkio/plugin/node"
	"github.com/nri-blkio/nri-blkio/policy"
)

const limitsKey = "limits.blkio.noderesource.dev/"

// configOf returns the configuration of a node with one disk. Its files are in dir, and it has no cgroups.
func configOf(dir string) (Config, error) {
	link := func(to string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(to), Mode: os.ModeSymlink} }
	sys := fstest.MapFS{
		"devices/pci/block/vda/dev": {Data: []byte("254:0\n")},
		"block/vda":                 link("../devices/pci/block/vda"),
		"dev/block/254:0":           link("../../devices/pci/block/vda"),
	}
	mounts := filepath.Join(dir, "mountinfo")
	if err := os.WriteFile(mounts, []byte("1 0 254:0 / / rw - ext4 /dev/vda rw\n"), 0o644); err != nil {
		return Config{}, err
	}
	disks, err := storage.Open(storage.Config{Sys: sys, Mountinfo: mounts, HostRoot: dir})
	if err != nil {
		return Config{}, err
	}
	if err := os.WriteFile(filepath.Join(dir, "cgroup.controllers"), []byte("cpu io memory\n"), 0o644); err != nil {
		return Config{}, err
	}
	h, err := cgroupfs.OpenTree(dir)
	if err != nil {
		return Config{}, err
	}
	log := logrus.New()
	log.SetOutput(io.Discard)
	return Config{Log: log, Policy: policy.Default(), Storage: disks, Cgroups: h, Layers: inventory.Layers{Default: inventory.Layer{Dir: "/layers"}}}, nil
}

// newPlugin returns a plugin of that node, with the changes that are made to its configuration.
func newPlugin(t *testing.T, change func(*Config)) *Plugin {
	t.Helper()
	cfg, err := configOf(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cfg.Cgroups.Close()
		cfg.Storage.(*storage.Storage).Close()
	})
	mine := cfg
	if change != nil {
		change(&mine)
	}
	p, err := New(mine, nil)
	if err != nil {
		t.Fatal(err)
	}
	p.connection.active() // as Run does, once it holds the lock
	return p
}

const podCgroup = "kubepods.slice/kubepods-pod1.slice"

func sandbox(annotations map[string]string) *api.PodSandbox {
	return &api.PodSandbox{
		Id: "sb1", Name: "db-0", Namespace: "prod", Uid: "u1", Annotations: annotations,
		Linux: &api.LinuxPodSandbox{CgroupParent: "/" + podCgroup},
	}
}

func ctr(name string) *api.Container {
	return &api.Container{
		Id: "id-" + name, PodSandboxId: "sb1", Name: name,
		Linux: &api.LinuxContainer{CgroupsPath: "kubepods-pod1.slice:cri-containerd:id-" + name},
	}
}

// hanging is a state in which each event waits for the lock.
type hanging struct {
	events
	mu sync.Mutex
}

func (h *hanging) wait() {
	h.mu.Lock()
	defer h.mu.Unlock()
}

func (h *hanging) Synchronize(sandboxes []*node.Sandbox, ctrs []*node.Container) {
	h.wait()
	h.events.Synchronize(sandboxes, ctrs)
}

func (h *hanging) Create(ctx context.Context, sb *node.Sandbox, c *node.Container, splitsLines bool) (policy.Settings, bool, error) {
	h.wait()
	return h.events.Create(ctx, sb, c, splitsLines)
}

func (h *hanging) Stopped(sandbox, id string) {
	h.wait()
	h.events.Stopped(sandbox, id)
}

// hang has the events of a plugin hang while the lock is held.
func hang(p *Plugin) *sync.Mutex {
	h := &hanging{events: p.events}
	p.events = h
	return &h.mu
}

// TestMetricsAtZero verifies that each series exists from the start. An alert cannot see a series grow that
// appears with its first event.
func TestMetricsAtZero(t *testing.T) {
	r := prometheus.NewPedanticRegistry()
	if err := r.Register(newPlugin(t, nil)); err != nil {
		t.Fatal(err)
	}
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]bool{}
	for _, f := range families {
		name, _ := strings.CutPrefix(f.GetName(), "nri_blkio_")
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				name += "{" + l.GetValue() + "}"
			}
		}
		got[name] = true
	}
	want := []string{
		"budget_refused_containers_total", "connected", "containers{failed}{limited}{observed}{unlimited}", "exit_watch", "exits_total{failed}{lifted}{lost}", "handler_seconds{create}{start}",
		"limits_written_total", "live_changes_total{applied}{rejected}", "namespaces_over_budget", "pods", "pods_left_out", "pods_not_in_force", "pods_with_foreign_limits", "pods_without_namespace_labels", "reconcile_seconds", "refused_containers_total{internal}{invalid}{unenforceable}",
		"standby", "syncs_total{failed}{ok}", "unexpected_events_total",
		"warnings{annotations_ignored}{claim_not_enforced}{class_not_enforced}{guarded}{no_cgroup_writeback}{no_memory_limit}{other}{stalls_fsync}",
	}
	if d := cmp.Diff(want, slices.Sorted(maps.Keys(got))); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

// slow is a Storage whose Refresh takes until it is let go.
type slow struct {
	node.Storage
	refresh func()
}

func (s slow) Refresh(context.Context) error {
	s.refresh()
	return nil
}

// TestRunEndsLast verifies that Run has the lock until the reconciler and its work have ended.
func TestRunEndsLast(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	looking, ended := make(chan struct{}), make(chan error, 1)
	p := newPlugin(t, func(cfg *Config) {
		cfg.Storage = slow{cfg.Storage, func() {
			close(looking)
			<-ctx.Done()
			select {
			case err := <-ended:
				t.Errorf("Run has returned (%v) while the reconciler resolves a container", err)
			case <-time.After(100 * time.Millisecond): // only a failure needs this time
			}
		}}
	})
	c := ctr("a")
	c.State = api.ContainerState_CONTAINER_RUNNING
	sb := sandbox(map[string]string{limitsKey + "containers": "rootfs wbps=1Mi"})
	p.events.Synchronize([]*node.Sandbox{sandboxOf(sb)}, []*node.Container{containerOf(c)})
	socket := filepath.Join(t.TempDir(), "nri.sock") // nothing listens there
	done := make(chan struct{})
	go func() {
		defer close(done)
		ended <- p.Run(ctx, RunConfig{Socket: socket, Index: "90", Dial: new(net.Dialer).DialContext})
	}()
	<-looking
	cancel()
	<-done
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
