package plugin

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/sirupsen/logrus/hooks/test"

	"github.com/nri-blkio/nri-blkio/plugin/enforce/plan"
	"github.com/nri-blkio/nri-blkio/plugin/node"
	"github.com/nri-blkio/nri-blkio/policy"
)

// forger is another plugin that sets the mark.
type forger struct{ link }

func (*forger) CreateContainer(context.Context, *api.PodSandbox, *api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
	return marked("id", nil), nil, nil
}

// validated is a runtime with a Plugin and a Validator.
type validated struct {
	*nriRuntime
	p    *Plugin
	v    *Validator
	stop func()      // the plugin
	hung *sync.Mutex // while it hangs

	broken atomic.Bool // the plugin's storage
}

// breakable is a Storage that cannot read the mount table while broken is set.
type breakable struct {
	node.Storage
	broken *atomic.Bool
}

func (b breakable) Refresh(ctx context.Context) error {
	if b.broken.Load() {
		return errors.New("no mounts")
	}
	return b.Storage.Refresh(ctx)
}

func newValidated(t *testing.T, timeout time.Duration) *validated {
	t.Helper()
	r := &validated{nriRuntime: newRuntime(t, timeout, &listed{})}
	r.p = newPlugin(t, func(cfg *Config) { cfg.Storage = breakable{cfg.Storage, &r.broken} })
	r.hung = hang(r.p)
	r.v = NewValidator(r.p.log, nil)
	r.serve(t, r.v.Run)
	r.awaitSynced(t, 1)
	r.stop = r.serve(t, r.p.Run)
	r.awaitSynced(t, 2)
	return r
}

// awaitSynced waits until n plugins were synchronized, and take part in a create.
func (r *nriRuntime) awaitSynced(t *testing.T, n int32) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d synchronized", n), func() bool { return r.synced.Load() >= n })
	// The runtime adds a plugin under the lock of its requests, after it synchronized it.
	eventually(t, "an answer", func() bool { return r.RemoveContainer(t.Context(), &api.RemoveContainerRequest{}) == nil })
}

// wantCreate asserts that a container is created, with or without the mark, or refused.
func (r *validated) wantCreate(t *testing.T, what string, sb *api.PodSandbox, c *api.Container, mark, refused bool) {
	t.Helper()
	adjust, err := r.create(t.Context(), sb, c)
	if got := err != nil && strings.Contains(err.Error(), errUndecided.Error()); got != refused || !refused && err != nil {
		t.Errorf("%s: %v", what, err)
	}
	if _, ok := adjust.GetAnnotations()[markKey]; ok != mark {
		t.Errorf("%s: annotations %v", what, adjust.GetAnnotations())
	}
}

// TestValidator verifies that a container of an annotated pod is created only if the plugin decided it, and
// others always.
func TestValidator(t *testing.T) {
	r := newValidated(t, 10*time.Second) // a busy machine needed most of 2 s
	limited := sandbox(map[string]string{limitsKey + "container.a": "rootfs wbps=1Mi"})
	plain := sandbox(nil)
	plain.Id, plain.Linux = "plain", &api.LinuxPodSandbox{CgroupParent: "/kubepods.slice/kubepods-pod2.slice"}
	eventually(t, "an adjustment", func() bool {
		adjust, err := r.create(t.Context(), limited, ctr("a"))
		return err == nil && adjust.GetAnnotations()[markKey] != ""
	})
	r.wantCreate(t, "limited", limited, ctr("a"), true, false)
	r.wantCreate(t, "nothing to limit", limited, ctr("b"), true, false)
	r.wantCreate(t, "no annotations", plain, ctr("c"), false, false)
	observe := *policy.Default()
	observe.Mode = policy.ModeObserve
	r.p.Reload(&observe)
	r.wantCreate(t, "observed", limited, ctr("a"), true, false)
	r.p.Reload(policy.Default())

	r.broken.Store(true)
	r.wantCreate(t, "own failure", limited, ctr("a"), false, true)
	r.broken.Store(false)

	r.hung.Lock() // the plugin hangs
	r.wantCreate(t, "hung", limited, ctr("a"), false, true)
	r.wantCreate(t, "dropped", limited, ctr("a"), false, true)
	r.wantCreate(t, "hung, no annotations", plain, ctr("c"), false, false)
	synced := r.synced.Load()
	r.hung.Unlock()
	r.awaitSynced(t, synced+1)
	r.wantCreate(t, "well again", limited, ctr("a"), true, false)
	forged := ctr("a")
	forged.Annotations = map[string]string{markKey: "true io.max:0011223344556677"}
	adjust, err := r.create(t.Context(), limited, forged)
	spec := plan.ReadSpec(forged.GetId(), adjust.GetAnnotations()[markKey], adjust.GetLinux().GetResources().GetUnified())
	if err != nil || len(spec.Own) != 1 || len(spec.Others) > 0 {
		t.Errorf("the container has another mark than that of the plugin: %v, %v, %v", spec, adjust.GetAnnotations(), err)
	}

	r.stop()
	r.wantCreate(t, "gone", limited, ctr("a"), false, true)
	r.wantCreate(t, "gone, no annotations", plain, ctr("c"), false, false)
	r.wantCreate(t, "annotation of the container", limited, forged, false, true)
	f := &forger{newLink()}
	if err := f.register(t.Context(), RunConfig{Socket: r.socket, Index: "10", Dial: new(net.Dialer).DialContext}, "forger", f, r.p.log); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the other plugin", func() bool {
		adjust, _ := r.create(t.Context(), plain, ctr("c"))
		return adjust.GetAnnotations()[markKey] != ""
	})
	r.wantCreate(t, "mark of another plugin", limited, ctr("a"), false, true)
	if n := r.v.refused.Load(); n < 5 {
		t.Errorf("%d refusals counted", n)
	}
}

// TestValidatorPanics verifies that the validator rejects after a panic, because the mark is unknown then.
func TestValidatorPanics(t *testing.T) {
	log, _ := test.NewNullLogger()
	s := &validation{v: NewValidator(log, nil), link: newLink()}
	req := &api.ValidateContainerAdjustmentRequest{
		Pod: sandbox(map[string]string{limitsKey + "containers": "rootfs wbps=1Mi"}), Container: ctr("a"),
		Adjust: marked("id-a", nil), Owners: &api.OwningPlugins{Owners: map[string]*api.FieldOwners{
			"id-a": {Compound: map[int32]*api.CompoundFieldOwners{api.Field_Annotations.Key(): nil}},
		}},
	}
	if err := s.ValidateContainerAdjustment(t.Context(), req); err == nil {
		t.Error("not refused")
	}
}

// TestNotSynchronized verifies that the log reports that nri's messages cannot hold these containers.
func TestNotSynchronized(t *testing.T) {
	n := &listed{}
	for i := range 30 {
		c := &api.Container{Id: fmt.Sprint(i), PodSandboxId: fmt.Sprint(i)}
		if i >= 10 && i < 18 {
			c.Env = []string{"A=" + strings.Repeat("x", 1100<<10)}
		}
		n.pods = append(n.pods, &api.PodSandbox{Id: fmt.Sprint(i), Name: "p"})
		n.ctrs = append(n.ctrs, c)
	}
	p := newPlugin(t, nil)
	log, hook := test.NewNullLogger()
	p.log = log
	r := newRuntime(t, 10*time.Second, n)
	r.serve(t, p.Run)
	eventually(t, "the log names the cause", func() bool {
		for _, e := range hook.AllEntries() {
			if strings.Contains(fmt.Sprint(e.Data["error"]), "does not fit NRI's messages") {
				return true
			}
		}
		return false
	})
}
