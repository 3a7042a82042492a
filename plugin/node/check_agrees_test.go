package node

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/internal/fakenode"
	"github.com/nri-blkio/nri-blkio/plugin/check"
	"github.com/nri-blkio/nri-blkio/plugin/enforce/plan"
	"github.com/nri-blkio/nri-blkio/plugin/inventory"
	"github.com/nri-blkio/nri-blkio/plugin/manifest"
	"github.com/nri-blkio/nri-blkio/policy"
)

// agreement has a pod as its manifest describes it, and the results of run for it.
type agreement struct {
	pod     manifest.Pod
	pol     *policy.Policy
	plugin  *Node
	sandbox *Sandbox
}

// newAgreement returns a pod with the volumes data and logs on one disk, mem in memory, and
// others on the disk of the kubelet's directory. Each container has all of them.
func newAgreement(t *testing.T, annotations map[string]string, containers []manifest.Container, change func(*policy.Policy)) *agreement {
	t.Helper()
	a := &agreement{pol: policy.Default(), sandbox: sandbox(annotations)}
	if change != nil {
		change(a.pol)
	}
	a.pod.Annotations, a.pod.Labels, a.pod.QOS = annotations, a.sandbox.Labels, manifest.Guaranteed
	a.pod.Namespace = a.sandbox.Namespace
	a.pod.Volumes = []manifest.Volume{
		{Name: "data", Source: manifest.HostPath, Path: "/mnt/data/db"},
		{Name: "logs", Source: manifest.HostPath, Path: "/mnt/data/logs"},
		{Name: "mem", Source: manifest.HostPath, Path: "/mnt/mem"},
		{Name: "scratch", Source: manifest.EmptyDir},
		{Name: "config", Source: "configMap"},
		{Name: "part", Source: manifest.HostPath, Path: "/srv"},
	}
	var cgroups []string
	for _, c := range containers {
		for _, v := range a.pod.Volumes {
			m := manifest.Mount{Volume: v.Name, Path: "/" + v.Name}
			if v.Name == "part" {
				m.SubPath = "a"
			}
			c.Mounts = append(c.Mounts, m)
		}
		a.pod.Containers = append(a.pod.Containers, c)
		cgroups = append(cgroups, cgroupOf(c.Name))
	}
	h, _ := tree(t, append(cgroups, podCgroup)...)
	a.plugin = newNode(t, h)
	a.plugin.policy.Store(a.pol)
	return a
}

// check returns the result of check.
func (a *agreement) check(ctx context.Context) check.Result {
	checker := check.Checker{Policy: a.pol, Node: check.Node{
		Storage: fakenode.MountTable{Disks: fakenode.NewDisks()}, KubeletRoot: DefaultKubeletRoot, Weights: check.Weights{Kernel: blkio.Yes},
		Layers: inventory.Layers{Default: inventory.Layer{Dir: "/var/lib/containerd"}},
	}}
	return checker.Pod(ctx, &a.pod)
}

// run creates the containers as the kubelet does. It returns the lines by container, "" for the pod, with a
// line for each setting in the answer to the runtime. It also returns the errors of the containers that are not
// created.
func (a *agreement) run(t *testing.T) (lines map[string][]string, refused map[string]string) {
	t.Helper()
	lines, refused = map[string][]string{}, map[string]string{}
	for _, c := range a.pod.Containers {
		description := ctr(c.Name, a.mounts(c.Name)...)
		adjust, err := a.plugin.create(t.Context(), a.sandbox, description, true)
		if err != nil {
			refused[c.Name] = err.Error()
			continue
		}
		pod := a.plugin.podOf(a.sandbox.ID)
		if pod.isNone() {
			continue // it asks for nothing
		}
		a.plugin.findOrRegister(pod, description)
		for file, text := range plan.Unified(adjust) {
			for line := range strings.Lines(text) {
				lines[c.Name] = append(lines[c.Name], file+" "+strings.TrimSpace(line))
			}
		}
		if c.Role == manifest.Init {
			a.plugin.Stopped(a.sandbox.ID, description.ID)
		}
	}
	if pod := a.plugin.podOf(a.sandbox.ID); !pod.isNone() {
		for _, l := range a.plugin.planFor(pod.group).Pod.Want.Lines() {
			lines[""] = append(lines[""], l.File+" "+strings.TrimPrefix(l.Text, "default "))
		}
	}
	for _, l := range lines {
		slices.Sort(l)
	}
	return lines, refused
}

// mounts returns the mounts of a container as the kubelet and the runtime make them.
func (a *agreement) mounts(container string) []inventory.Mount {
	const pod = DefaultKubeletRoot + "/pods/u1/"
	out := []inventory.Mount{bind(pod+"etc-hosts", "/etc/hosts", "rbind", "rw")}
	for i, v := range a.pod.Volumes {
		m := bind(v.Path, "/"+v.Name, "rbind", "rw")
		switch v.Name {
		case "scratch":
			m.Source = podVolumes + "empty-dir/" + v.Name
		case "config":
			m.Source, m.Options = podVolumes+"configmap/"+v.Name, []string{"rbind", "ro"}
		case "part":
			m.Source = fmt.Sprintf("%svolume-subpaths/part/%s/%d", pod, container, i)
		}
		out = append(out, m)
	}
	return out
}

// agreementTest is a pod for which check has to report the same as run does.
type agreementTest struct {
	name        string
	annotations map[string]string
	change      func(*policy.Policy)
	refused     []string
	pod         []string // lines of the pod; the others are compared alone
}

func agreedContainers() []manifest.Container {
	return []manifest.Container{
		{Name: "init", Role: manifest.Init},
		{Name: "proxy", Role: manifest.Sidecar},
		{Name: "a", Role: manifest.Main},
		{Name: "b", Role: manifest.Main},
	}
}

func (tt *agreementTest) run(t *testing.T) {
	a := newAgreement(t, tt.annotations, agreedContainers(), tt.change)
	said := a.check(t.Context())
	did, refused := a.run(t)
	lines := map[string][]string{}
	for _, w := range said.Writes {
		lines[w.Container] = append(lines[w.Container], w.File+" "+w.Line)
	}
	for _, l := range lines {
		slices.Sort(l)
	}
	if diff := cmp.Diff(did, lines); diff != "" {
		t.Errorf("-run +check:\n%s", diff)
	}
	if diff := cmp.Diff(tt.pod, did[""]); tt.pod != nil && diff != "" {
		t.Errorf("pod -want +run:\n%s", diff)
	}
	if diff := cmp.Diff(tt.refused, slices.Sorted(maps.Keys(refused))); diff != "" {
		t.Errorf("refused -want +run:\n%s", diff)
	}
	for name, text := range refused {
		if !slices.Contains(said.Errors, text) || !slices.Contains(said.Effects, "container "+name+" is not created") {
			t.Errorf("check does not say that %s is refused for %q: %q, %q", name, text, said.Errors, said.Effects)
		}
	}
	if len(refused) != strings.Count(strings.Join(said.Effects, "\n"), "is not created") {
		t.Errorf("check refuses others: %q", said.Effects)
	}
}

// keys returns the annotations of a pod from pairs of a key, without the domain, and a value.
func keys(pairs ...string) map[string]string {
	out := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		out[strings.Replace(pairs[i], "/", ".blkio.noderesource.dev/", 1)] = pairs[i+1]
	}
	return out
}

// classes changes a policy to one with classes, and with a rule for pods such as the agreement's.
func classes(more string) func(p *policy.Policy) {
	return func(p *policy.Policy) {
		changed, err := policy.ParseFile([]byte("apiVersion: blkio.noderesource.dev/v1alpha1\nkind: NodePolicy\n" +
			"classes: {one: {limits: ['* wbps=6Mi'], weight: 40}, two: {limits: ['* wbps=8Mi', '/data rbps=1Mi']}}\n" +
			"rules: [{name: r, match: {namespaces: [prod], qos: [Guaranteed]}, class: one" + more + "}]\n"))
		if err != nil {
			panic(err)
		}
		*p = *changed
	}
}

// TestCheckAgrees verifies that check reports for a manifest the same as run does with its containers.
func TestCheckAgrees(t *testing.T) {
	ignore := func(p *policy.Policy) {
		p.OnError = policy.OnError{Invalid: policy.Ignore, Unenforceable: policy.Ignore, Internal: policy.Ignore}
	}
	for _, tt := range []agreementTest{
		{name: "no limits", annotations: map[string]string{"example.com/x": "y"}},
		{name: "a disk", annotations: keys("limits/container.a", "/data wbps=1Mi")},
		{name: "all disks", annotations: keys("limits/containers", "* wbps=1Mi riops=50"), pod: []string{"io.max 254:0 wbps=3145728 riops=150", "io.max 254:16 wbps=3145728 riops=150"}},
		{name: "all but one, so no backstop", annotations: keys("limits/container.a", "* wbps=1Mi", "limits/container.proxy", "* wbps=1Mi")},
		{
			name: "a total below the backstop, and another key", pod: []string{"io.max 254:0 rbps=5242880 wbps=2097152"},
			annotations: keys("limits/containers", "rootfs wbps=1Mi", "limits/pod-total", "rootfs wbps=2Mi rbps=5Mi"),
		},
		{
			name: "without a backstop", annotations: keys("limits/containers", "rootfs wbps=1Mi"),
			change: func(p *policy.Policy) { p.Writeback.Backstop = false },
		},
		{
			name: "weights", annotations: keys("weight/containers", "50", "weight/pod-total", "70", "weight/container.b", "20"), pod: []string{"io.weight 70"},
		},
		{
			name: "a guard of dirty pages", annotations: keys("limits/containers", "rootfs wbps=1Mi"),
			change: func(p *policy.Policy) { p.Writeback.DirtyGuard = 256 << 20 },
		},
		{name: "an emptyDir by its name", annotations: keys("limits/container.a", "@scratch wbps=1Mi; rootfs wbps=2Mi")},
		{name: "a hostPath by its name", annotations: keys("limits/container.a", "@data wbps=1Mi"), refused: []string{"a"}},
		{name: "a hostPath with a subPath by its name", annotations: keys("limits/container.a", "@part wbps=1Mi")},
		{name: "a misspelled volume", annotations: keys("limits/container.a", "@confgi rbps=1Mi"), refused: []string{"a"}},
		{name: "a read-only volume by its name", annotations: keys("limits/container.a", "@config rbps=1Mi")},
		{name: "writes to a read-only volume", annotations: keys("limits/container.a", "@config wbps=1Mi; /config wbps=1Mi")},
		{name: "a file that the kubelet adds", annotations: keys("limits/container.a", "/etc/hosts wbps=1Mi")},
		{name: "below a volume", annotations: keys("limits/container.a", "/data/x/y wbps=1Mi; /scratch/x rbps=1Mi")},
		{name: "a path that is the writable layer", annotations: keys("limits/container.a", "/database wbps=1Mi"), refused: []string{"a"}},
		{name: "a typo", annotations: keys("limits/container.b", "/data wpbs=1Mi"), refused: []string{"b"}},
		{name: "a typo of the whole pod", annotations: keys("limits/container", "/data wbps=1Mi"), refused: []string{"a", "b", "init", "proxy"}},
		{name: "memory", annotations: keys("limits/container.a", "/mem wbps=1Mi; /data wbps=1Mi"), refused: []string{"a"}},
		{name: "memory, ignored", annotations: keys("limits/container.a", "/mem wbps=1Mi; /data wbps=1Mi"), change: ignore},
		{name: "a conflict", annotations: keys("limits/container.a", "/data wbps=1Mi; /logs wbps=2Mi"), refused: []string{"a"}},
		{name: "a conflict, ignored", annotations: keys("limits/container.a", "/data wbps=1Mi; /logs wbps=2Mi"), change: ignore},
		{name: "a conflict in the total", annotations: keys("limits/pod-total", "/data wbps=1Mi; /logs wbps=2Mi"), refused: []string{"a", "b", "init", "proxy"}},
		{
			name:        "an ignored error, and a conflict in the total",
			annotations: keys("limits/container.a", "/mem wbps=1Mi", "limits/pod-total", "/data wbps=1Mi; /logs wbps=2Mi"),
			change:      func(p *policy.Policy) { p.OnError.Unenforceable = policy.Ignore },
			refused:     []string{"a", "b", "init", "proxy"},
		},
		{name: "a floor", annotations: keys("limits/container.a", "/data wbps=1Ki"), refused: []string{"a"}},
		{name: "a weight over the bound", annotations: keys("weight/container.a", "200"), refused: []string{"a"}},
		{
			name: "no handler is known", annotations: keys("limits/container.a", "/data wbps=1Mi"), refused: []string{"a", "b", "init", "proxy"},
			change: func(p *policy.Policy) { p.HostKernelHandlers = nil },
		},
		{name: "a container that the pod does not have", annotations: keys("limits/container.c", "/data wbps=1Mi")},
	} {
		t.Run(tt.name, tt.run)
	}
}

// TestCheckAgreesOnClasses verifies the same for a pod that a rule matches.
func TestCheckAgreesOnClasses(t *testing.T) {
	for _, tt := range []agreementTest{
		{
			name: "a class", annotations: keys("limits/container.a", "/data rbps=1Mi wbps=2Mi"), change: classes(""),
			pod: []string{"io.max 254:0 wbps=18874368", "io.max 254:16 wbps=14680064"},
		},
		{name: "a class alone", change: classes(""), pod: []string{"io.max 254:0 wbps=18874368", "io.max 254:16 wbps=18874368"}},
		{name: "another class", annotations: keys("class/container.a", "two", "class/container.b", "one"), change: classes("")},
		{name: "a class out of bounds", annotations: keys("class/container.a", "two"), change: classes(", bounds: {max: ['* wbps=6Mi']}"), refused: []string{"a"}},
		{name: "out of bounds", annotations: keys("limits/container.b", "/data wbps=max"), change: classes(", bounds: {max: ['* wbps=6Mi']}"), refused: []string{"b"}},
		{name: "rejected annotations", annotations: keys("limits/container.b", "x"), change: classes(", annotations: reject"), refused: []string{"a", "b", "init", "proxy"}},
		{name: "ignored annotations", annotations: keys("limits/container.b", "x"), change: classes(", annotations: ignore")},
	} {
		t.Run(tt.name, tt.run)
	}
}
