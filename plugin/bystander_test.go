package plugin

import (
	"errors"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"

	"github.com/nri-blkio/nri-blkio/plugin/node"
	"github.com/nri-blkio/nri-blkio/plugin/node/cause"
	"github.com/nri-blkio/nri-blkio/policy"
)

// withClass is a policy with a class for the pods of a namespace.
func withClass(t *testing.T, namespace string) *policy.Policy {
	t.Helper()
	p, err := policy.ParseFile([]byte("apiVersion: blkio.noderesource.dev/v1alpha1\nkind: NodePolicy\n" +
		"classes: {bronze: {limits: ['rootfs wbps=20Mi']}}\nrules: [{name: r, match: {namespaces: [" + namespace + "]}, class: bronze}]"))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestPodOfRule verifies that a pod without annotations concerns the plugin if a rule has a class for it.
func TestPodOfRule(t *testing.T) {
	plain := sandbox(nil)
	for namespace, want := range map[string]bool{plain.GetNamespace(): true, "another": false} {
		p := newPlugin(t, func(c *Config) { c.Policy = withClass(t, namespace) })
		s := &session{p: p, log: p.log, deadline: time.Minute}
		adjust, _, err := s.CreateContainer(t.Context(), plain, ctr("a"))
		if err != nil || (adjust.GetAnnotations()[markKey] != "") != want {
			t.Errorf("%s: %v, %v", namespace, adjust, err)
		}
	}
}

// TestPodOfFormerRule verifies that a pod concerns the plugin as long as it is known, also without its former
// class, and so do further sandboxes of it.
func TestPodOfFormerRule(t *testing.T) {
	plain := sandbox(nil)
	p := newPlugin(t, func(c *Config) { c.Policy = withClass(t, plain.GetNamespace()) })
	s := &session{p: p, log: p.log, deadline: time.Minute}
	if _, _, err := s.CreateContainer(t.Context(), plain, ctr("a")); err != nil {
		t.Fatal(err)
	}
	p.Reload(policy.Default())
	again := sandbox(nil)
	again.Id = "sb2"
	for _, sb := range []*api.PodSandbox{plain, again} {
		if !p.events.Enter(sandboxOf(sb), containerOf(ctr("b")), node.Created) {
			t.Errorf("%s is of no concern", sb.GetId())
		}
	}
	other := sandbox(nil)
	other.Id, other.Linux = "sb3", &api.LinuxPodSandbox{CgroupParent: "/kubepods.slice/kubepods-pod3.slice"}
	if p.events.Enter(sandboxOf(other), containerOf(ctr("b")), node.Created) {
		t.Error("another pod is of concern")
	}
}

// passingBy is a state that panics when a pod of no concern is noted.
type passingBy struct{ panicking }

func (passingBy) Enter(*node.Sandbox, *node.Container, node.State) bool {
	panic("no state")
}

// TestPanicOfBystander verifies that a failure that is about a pod without annotations and without a class
// refuses none of its containers. If its rule cannot be known, that depends on whether some rule has a class.
func TestPanicOfBystander(t *testing.T) {
	for _, unknown := range []bool{false, true} {
		p := newPlugin(t, nil)
		s := &session{p: p, log: p.log, deadline: time.Minute}
		s.p.events = passingBy{panicking{p.events}}
		if unknown {
			s.p.events = unmatched{panicking{passingBy{panicking{p.node}}}}
		}
		for text, want := range map[string]error{"": nil, "another": map[bool]error{true: cause.ErrInternal}[unknown]} {
			pol := *policy.Default()
			if text != "" {
				pol = *withClass(t, text)
			}
			pol.OnError.Internal = policy.Reject
			p.Reload(&pol)
			if _, _, err := s.CreateContainer(t.Context(), sandbox(nil), ctr("a")); !errors.Is(err, want) {
				t.Errorf("class for %q, rule unknown %v: %v, want %v", text, unknown, err, want)
			}
		}
	}
}

// TestBystander verifies that a policy that has a class for a pod limits those of its containers that the
// events of the session have reported. The plugin does not register with the runtime again.
func TestBystander(t *testing.T) {
	plain := sandbox(nil)
	before := ctr("before")
	before.State = api.ContainerState_CONTAINER_RUNNING
	r := newRuntime(t, 10*time.Second, &listed{[]*api.PodSandbox{plain}, []*api.Container{before}})
	p := newPlugin(t, nil)
	r.serve(t, p.Run)
	eventually(t, "it is synchronized", func() bool { return r.synced.Load() == 1 })
	for _, name := range []string{"a", "ended"} {
		if adjust, err := r.create(t.Context(), plain, ctr(name)); err != nil || adjust.GetAnnotations()[markKey] != "" {
			t.Fatalf("%v, %v", adjust, err)
		}
		if err := r.StartContainer(t.Context(), &api.StartContainerRequest{Pod: plain, Container: ctr(name)}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.StopContainer(t.Context(), &api.StopContainerRequest{Pod: plain, Container: ctr("ended")}); err != nil {
		t.Fatal(err)
	}
	if pods, _, _ := p.node.Counts(); pods != 0 {
		t.Fatalf("%d pods are known", pods)
	}
	p.Reload(withClass(t, "another"))
	if pods, _, _ := p.node.Counts(); pods != 0 {
		t.Fatalf("%d pods of another namespace are known", pods)
	}
	p.Reload(withClass(t, plain.GetNamespace()))
	if pods, _, _ := p.node.Counts(); pods != 1 {
		t.Fatalf("%d pods are known", pods)
	}
	adjust, err := r.create(t.Context(), plain, ctr("b"))
	if err != nil || adjust.GetAnnotations()[markKey] == "" {
		t.Errorf("the next container: %v, %v", adjust, err)
	}
	if n := r.synced.Load(); n != 1 {
		t.Errorf("%d registrations", n)
	}
}
