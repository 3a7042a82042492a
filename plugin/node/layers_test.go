package node

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus/hooks/test"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/plugin/enforce/plan"
	"github.com/nri-blkio/nri-blkio/plugin/inventory"
	"github.com/nri-blkio/nri-blkio/policy"
)

func TestRootfsByHandler(t *testing.T) {
	h, _ := tree(t, podCgroup)
	n := newNode(t, h)
	n.layers.current.Store(&layerLocations{Layers: inventory.Layers{
		Default: inventory.Layer{Dir: "/var/lib/containerd"},
		Handlers: map[string]inventory.Layer{
			"":     {Dir: "/mnt/data/layers"},
			"thin": {Reason: "it has a device of its own"},
		},
	}})
	pol := *policy.Default()
	pol.HostKernelHandlers = append(pol.HostKernelHandlers, "thin", "other")
	n.Reload(&pol)
	for handler, want := range map[string]string{
		"":      "254:16 wbps=1048576",
		"other": "254:0 wbps=1048576",
		"thin":  "cannot be limited: it has a device of its own",
	} {
		sb := sandbox(map[string]string{limitsKey + "containers": "rootfs wbps=1Mi"})
		sb.Handler = handler
		sb.ID = "sb-" + handler
		c := ctr("db")
		c.Sandbox = sb.ID
		adjust, err := n.create(t.Context(), sb, c, false)
		got := plan.Unified(adjust)["io.max"]
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, want) {
			t.Errorf("handler %q: got %s, want %s", handler, got, want)
		}
	}
}

// TestLayersAreReadAgain verifies that the layers are read again when the runtime registers the plugin again,
// because it may have been restarted with another configuration.
func TestLayersAreReadAgain(t *testing.T) {
	h, _ := tree(t, podCgroup)
	data, failure := inventory.Layers{Default: inventory.Layer{Dir: "/mnt/data/layers"}}, errors.New("no answer")
	var asked []string
	fresh, err := data, error(nil)
	n := newReader(t, h, func(_ context.Context, runtime, version string) (inventory.Layers, error) {
		asked = append(asked, runtime+" "+version)
		return fresh, err
	})
	configure := func(want inventory.Layers) {
		t.Helper()
		n.Registered(t.Context(), "containerd", "v2.1.0", time.Minute)
		if got := n.layers.current.Load(); !got.Equal(want) {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
	configure(data)
	fresh, err = inventory.Layers{}, failure
	configure(data) // the known layers stay in use
	fresh = inventory.Layers{Default: inventory.Layer{Dir: "/var/lib/other"}}
	configure(fresh) // layers that come with an error are used as well
	if len(asked) != 3 || asked[0] != "containerd v2.1.0" {
		t.Errorf("the runtime was asked %q, want three times with its name and version", asked)
	}
	if len(n.layers.questions) != 1 {
		t.Error("the runtime is not asked again after a failure")
	}
}

// newReader returns a plugin that finds by read where layers are.
func newReader(t *testing.T, h *cgroupfs.Hierarchy, read func(context.Context, string, string) (inventory.Layers, error)) *Node {
	t.Helper()
	log, _ := test.NewNullLogger()
	n, err := New(Config{
		Log: log, Policy: policy.Default(), Storage: disks{twoDisks}, Cgroups: h,
		Layers: inventory.Layers{Default: inventory.Layer{Dir: "/var/lib/containerd"}}, ReadLayers: read,
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestRuntimeThatDoesNotAnswer verifies that a runtime that does not answer delays neither the registration nor
// limits on other targets than the writable layer. Once it answers, earlier containers get their limits on the
// writable layer.
func TestRuntimeThatDoesNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, dir := tree(t, podCgroup, cgroupOf("layer"), cgroupOf("volume"))
		var answers atomic.Bool
		n := newReader(t, h, func(ctx context.Context, _, _ string) (inventory.Layers, error) {
			if answers.Load() {
				return inventory.Layers{Default: inventory.Layer{Dir: "/mnt/data/layers"}}, nil
			}
			<-ctx.Done()
			err := ctx.Err()
			return inventory.Layers{Default: inventory.Layer{Unknown: err.Error()}}, err
		})
		ctx, cancel := context.WithCancel(t.Context())
		go n.reconcile(ctx)
		go n.layers.askAgain(ctx)
		defer func() {
			cancel()
			synctest.Wait()
		}()
		s := &session{n, time.Second}
		began := time.Now()
		if n.Registered(ctx, "containerd", "v2.1.0", s.deadline); time.Since(began) > s.deadline {
			t.Fatalf("registered after %v", time.Since(began))
		}
		sb := sandbox(map[string]string{limitsKey + "container.volume": "/data wbps=1Mi", limitsKey + "container.layer": "rootfs wbps=2Mi"})
		for name, c := range map[string]*Container{"volume": ctr("volume", bind("/mnt/data", "/data")), "layer": ctr("layer")} {
			if _, err := s.CreateContainer(ctx, sb, c); err != nil {
				t.Errorf("%s is refused: %v", name, err) // internal failures are ignored by default
			}
			if err := s.StartContainer(ctx, sb, c); err != nil {
				t.Errorf("%s does not start: %v", name, err)
			}
		}
		if got := read(t, filepath.Join(dir, cgroupOf("volume"), "io.max")); got != "254:16 wbps=1048576" {
			t.Errorf("the volume's limit is %q", got)
		}
		if got := read(t, filepath.Join(dir, cgroupOf("layer"), "io.max")); got != "" {
			t.Errorf("io.max is %q before the layers are known, want none", got)
		}

		answers.Store(true)
		time.Sleep(2 * layersPause) // in the bubble
		synctest.Wait()
		if got := read(t, filepath.Join(dir, cgroupOf("layer"), "io.max")); got != "254:16 wbps=2097152" {
			t.Errorf("with an answer io.max is %q", got)
		}
	})
}

// TestLateAnswerMovesLayers verifies that the layers of the configuration files are used until the runtime
// answers. A container of an earlier registration stays where it is.
func TestLateAnswerMovesLayers(t *testing.T) {
	h, dir := tree(t, podCgroup, cgroupOf("old"), cgroupOf("new"))
	told := inventory.Layers{Default: inventory.Layer{Dir: "/var/lib/containerd"}}
	n := newReader(t, h, func(context.Context, string, string) (inventory.Layers, error) { return told, errors.New("by files") })
	sb := sandbox(map[string]string{limitsKey + "containers": "rootfs wbps=1Mi"})
	ioMax := func(name, want string) {
		t.Helper()
		if got := read(t, filepath.Join(dir, cgroupOf(name), "io.max")); !strings.HasSuffix(got, want) {
			t.Errorf("%s: io.max is %q, want %q", name, got, want)
		}
	}
	start := func(name string) {
		t.Helper()
		if err := n.start(t.Context(), sb, ctr(name), true); err != nil {
			t.Fatal(err)
		}
		ioMax(name, "254:0 wbps=1048576")
	}
	n.layers.askAtRegistration(t.Context(), "containerd", "v2")
	start("old")
	n.layers.askAtRegistration(t.Context(), "containerd", "v2")
	start("new")
	told = inventory.Layers{Default: inventory.Layer{Dir: "/mnt/data/layers"}}
	_ = n.layers.ask(t.Context(), <-n.layers.questions, time.Minute)
	n.reconcileGroup(t.Context(), n.peek().pods["sb1"].group)
	ioMax("old", "254:0 wbps=1048576")
	ioMax("new", "254:16 wbps=1048576")
}

// TestRegisteredDoesNotWait verifies that Registered does not wait for a runtime that does not report the
// locations of its layers.
func TestRegisteredDoesNotWait(t *testing.T) {
	h, _ := tree(t)
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, h)
		known := *n.layers.current.Load()
		hang := make(chan struct{})
		n.readLayers = func(context.Context, string, string) (inventory.Layers, error) {
			<-hang
			return inventory.Layers{Default: inventory.Layer{Dir: "/late"}}, nil
		}
		n.Registered(t.Context(), "containerd", "v2", time.Second)
		if got := n.layers.current.Load(); !got.Equal(known.Layers) {
			t.Errorf("layers %+v", got)
		}
		close(hang)
		synctest.Wait()
		if got := n.layers.current.Load().Default.Dir; got != "/late" {
			t.Errorf("the late answer is lost, layers are in %s", got)
		}
	})
}

// TestUnknownLayers verifies that a location that stays unknown, or a writable layer that cannot be found, is no error of a container
// that has no target there.
func TestUnknownLayers(t *testing.T) {
	h, _ := tree(t, podCgroup, cgroupOf("db"))
	told := inventory.Layers{Default: inventory.Layer{Unknown: "not asked yet"}}
	n := newReader(t, h, func(context.Context, string, string) (inventory.Layers, error) { return told, errors.New("no answer") })
	n.layers.current.Store(&layerLocations{Layers: told})
	sb := sandbox(map[string]string{limitsKey + "containers": "/data wbps=1Mi"})
	if err := n.start(t.Context(), sb, ctr("db", bind("/mnt/data", "/data")), true); err != nil {
		t.Fatal(err)
	}
	for _, now := range []inventory.Layer{{Unknown: "no answer"}, {Dir: "/mnt/dead"}} {
		told.Default = now
		n.layers.askAtRegistration(t.Context(), "containerd", "v2")
		n.storage = deadDir{n.storage}
		if errs := n.resolveAll(t.Context(), n.peek().pods["sb1"].group); len(errs) > 0 {
			t.Errorf("layers are at %+v: %v", now, errs)
		}
	}
}

// deadDir is a Storage without an answer about /mnt/dead.
type deadDir struct{ Storage }

func (d deadDir) Resolve(ctx context.Context, path string) blkio.Backing {
	if path == "/mnt/dead" {
		return blkio.Backing{Err: errors.New("input/output error")}
	}
	return d.Storage.Resolve(ctx, path)
}
