package grant

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

const (
	limits = "limits.blkio.noderesource.dev/"
	weight = "weight.blkio.noderesource.dev/"
)

var (
	vda = blkio.Disk{Dev: blkio.Dev{Major: 254}, Name: "vda"}
	vdb = blkio.Disk{Dev: blkio.Dev{Major: 254, Minor: 16}, Name: "vdb"}
)

// facts are those of a container whose writable layer is on vda, and with a volume /data on vdb.
func facts(name string) policy.Container {
	return policy.Container{
		Name: name, MemoryLimited: true, Rootfs: blkio.Backing{FSType: "ext4", Disks: []blkio.Disk{vda}},
		Mounts: []policy.Mount{{Destination: "/data", Backing: &blkio.Backing{FSType: "ext4", Disks: []blkio.Disk{vdb}}}},
	}
}

func text(s policy.Settings) string {
	var out []string
	for _, l := range s.Lines() {
		out = append(out, l.Text)
	}
	return strings.Join(out, ", ")
}

func parse(t *testing.T, yaml string) *policy.Policy {
	t.Helper()
	pol, err := policy.ParseFile([]byte("apiVersion: blkio.noderesource.dev/v1alpha1\nkind: NodePolicy\n" + yaml))
	if err != nil {
		t.Fatal(err)
	}
	return pol
}

// podBy returns a pod with containers, by annotations in pairs of a key and a value.
func podBy(pol *policy.Policy, handler string, containers []string, annotations ...string) *Pod {
	request := map[string]string{}
	for i := 0; i < len(annotations); i += 2 {
		request[annotations[i]] = annotations[i+1]
	}
	out := &Pod{Policy: pol.ForPod(&policy.PodFacts{Handler: handler}, annotation.Parse(request))}
	for _, name := range containers {
		out.Containers = append(out.Containers, Container{Facts: facts(name)})
	}
	return out
}

var noWeights = []string{blkio.IOWeight}

// TestDecide covers the errors of containers and of the pod as a whole, in the order of their worth.
func TestDecide(t *testing.T) {
	pol := policy.Default()
	for _, tt := range []struct {
		name, handler string
		annotations   []string
		missing       []string
		noTotal       string
		a, b, total   string
		errA, errB    string
	}{
		{name: "granted", annotations: []string{limits + "container.a", "rootfs wbps=1Mi", weight + "container.a", "50"}, a: "254:0 wbps=1048576, default 50"},
		{
			name: "no io.weight", missing: noWeights, annotations: []string{limits + "container.a", "rootfs wbps=1Mi", weight + "container.a", "50"},
			a: "254:0 wbps=1048576", errA: "this node's kernel has no io.weight",
		},
		{
			name: "no io.max", missing: []string{blkio.IOMax}, annotations: []string{limits + "containers", "* wbps=1Mi", weight + "container.a", "50"},
			a: "default 50", errA: `entry 1 "wbps=1Mi": this node's kernel has no io.max (CONFIG_BLK_DEV_THROTTLING)`, errB: "no io.max",
		},
		{
			name: "pod-total without both", missing: []string{blkio.IOMax, blkio.IOWeight},
			annotations: []string{limits + "pod-total", "/data wbps=2Mi", weight + "pod-total", "50"}, errA: "no io.max", errB: "no io.max",
		},
		{name: "another handler", handler: "kata", annotations: []string{limits + "container.a", "rootfs wbps=1Mi"}, errA: "kata", errB: "kata"},
		{
			name: "pod-total", annotations: []string{limits + "pod-total", "/data wbps=2Mi", weight + "pod-total", "50"},
			total: "254:16 wbps=2097152, default 50",
		},
		{
			name: "pod-total without io.weight", missing: noWeights, annotations: []string{limits + "pod-total", "/data wbps=2Mi", weight + "pod-total", "50"},
			total: "254:16 wbps=2097152", errA: "no io.weight", errB: "no io.weight",
		},
		{
			name: "pod-total without a cgroup", noTotal: "the pod has none", annotations: []string{limits + "pod-total", "/data wbps=2Mi"},
			errA: "the pod has none (limit its containers instead)", errB: "the pod has none",
		},
		{
			name: "an error of one container", annotations: []string{limits + "container.b", "/nowhere wbps=1Mi", limits + "containers", "* wbps=3Mi"},
			a: "254:0 wbps=3145728, 254:16 wbps=3145728", b: "254:0 wbps=3145728, 254:16 wbps=3145728", errB: `"/nowhere" is on no mount of the container`,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			in := podBy(pol, tt.handler, []string{"a", "b"}, tt.annotations...)
			in.Missing, in.NoTotal = tt.missing, tt.noTotal
			got := Decide(in)
			for i, want := range []string{tt.a, tt.b} {
				if d := text(got.Containers[i].Desired.Settings); d != want {
					t.Errorf("container %d: %s, want %s", i, d, want)
				}
			}
			if d := text(got.Total.Settings); d != tt.total {
				t.Errorf("the pod as a whole: %s, want %s", d, tt.total)
			}
			for i, want := range []string{tt.errA, tt.errB} {
				if err := got.Containers[i].Err; (err != nil) != (want != "") || err != nil && !strings.Contains(err.Error(), want) {
					t.Errorf("container %d: %v, want %q", i, err, want)
				}
			}
		})
	}
}

// TestWeightOfClass verifies that on a node without io.weight the weight of a class is left out with a warning,
// and the rest of the class holds.
func TestWeightOfClass(t *testing.T) {
	in := podBy(parse(t, "classes: {a: {limits: ['* wbps=1Mi'], weight: 50}}\nrules: [{name: r, class: a}]"), "", []string{"a"})
	in.Missing = noWeights
	got := Decide(in)
	d := &got.Containers[0]
	if d.Err != nil || text(d.Desired.Settings) != "254:0 wbps=1048576, 254:16 wbps=1048576" || !slices.Contains(d.Desired.WarningKinds, policy.NotEnforced) {
		t.Errorf("%s, %v, warnings %q", text(d.Desired.Settings), d.Err, d.Desired.Warnings)
	}
	if got.TotalErr != nil || got.Total.Settings != nil {
		t.Errorf("the pod as a whole: %s, %v", text(got.Total.Settings), got.TotalErr)
	}
}

// TestTotal verifies whose mounts bring limits of the pod as a whole: those of all containers that were created, but not of one that
// a later container of its name has replaced.
func TestTotal(t *testing.T) {
	const asked = "/data wbps=2Mi; /old wbps=3Mi"
	old := facts("a")
	old.Mounts[0].Destination, old.Stage = "/old", policy.Rejected
	for _, tt := range []struct {
		name string
		edit func(*Pod)
		want string
	}{
		{"of a container", func(*Pod) {}, "254:16 wbps=2097152"},
		{"of one that has ended", func(p *Pod) { p.Containers, p.Others = nil, []policy.Container{facts("b")} }, "254:16 wbps=2097152"},
		{"of none", func(p *Pod) { p.Containers = nil }, ""},
		{"of one that was replaced", func(p *Pod) {
			p.Containers = append(p.Containers, Container{Facts: old})
		}, "254:16 wbps=2097152"},
		{"of a record", func(p *Pod) {
			source := policy.Source{Kind: policy.FromAnnotation, Name: limits + "pod-total", Entry: 2, Target: "/old"}
			p.Before = &policy.Desired{Settings: policy.NewSettings(policy.Setting{Basis: policy.Carried, Value: blkio.Value{Address: blkio.Address{Key: blkio.Wbps, Dev: vda.Dev}, Amount: 3 << 20}, Source: source})}
		}, "254:0 wbps=3145728, 254:16 wbps=2097152"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			in := podBy(policy.Default(), "", []string{"a"}, limits+"pod-total", asked)
			tt.edit(in)
			if got := text(Decide(in).Total.Settings); got != tt.want {
				t.Errorf("%s, want %s", got, tt.want)
			}
		})
	}
}

// TestCarry verifies that what was granted before stays in force where the policy rejects it now, and that it does not after an edit,
// in mode observe, or if it is not asked for any more.
func TestCarry(t *testing.T) {
	const asked = "rootfs wbps=1Mi"
	before := Decide(podBy(policy.Default(), "", []string{"a"}, limits+"containers", asked)).Containers[0].Desired
	if text(before.Settings) != "254:0 wbps=1048576" {
		t.Fatal(text(before.Settings))
	}
	const floor = "floors: {bps: 2Mi}\n"
	for _, tt := range []struct {
		name, policy, asked string
		isEdited            bool
		want                string
	}{
		{name: "rejected now", policy: floor, asked: asked, want: "254:0 wbps=1048576"},
		{name: "edited", policy: floor, asked: asked, isEdited: true},
		{name: "observed", policy: floor + "mode: observe\n", asked: asked},
		{name: "not asked for", policy: floor, asked: "/data wbps=3Mi", want: "254:16 wbps=3145728"},
		{name: "granted now", policy: "mode: enforce\n", asked: "rootfs wbps=3Mi", want: "254:0 wbps=3145728"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			in := podBy(parse(t, tt.policy), "", []string{"a"}, limits+"containers", tt.asked)
			granted := before
			if tt.isEdited {
				granted = before.WithoutAsked()
			}
			in.Containers[0].Before = &granted
			if got := text(Decide(in).Containers[0].Desired.Settings); got != tt.want {
				t.Errorf("%s, want %s", got, tt.want)
			}
		})
	}
}

// TestTooManyMounts verifies that a container with more mounts than are known is rejected if something limits it or its pod, and
// not otherwise.
func TestTooManyMounts(t *testing.T) {
	for name, tt := range map[string]struct {
		annotations []string
		rejected    bool
	}{
		"no limit":  {},
		"a limit":   {[]string{limits + "containers", "rootfs wbps=1Mi"}, true},
		"pod-total": {[]string{limits + "pod-total", "/data wbps=1Mi"}, true},
		"a weight":  {[]string{weight + "containers", "50"}, true},
	} {
		in := podBy(policy.Default(), "", []string{"a"}, tt.annotations...)
		in.Containers[0].TooManyMounts = true
		err := Decide(in).Containers[0].Err
		if in.Policy.Refuses(err) != tt.rejected || tt.rejected && !strings.Contains(err.Error(), "too many mounts") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestFirst verifies that an error that is ignored hides none that is rejected.
func TestFirst(t *testing.T) {
	pol := policy.Default()
	pol.OnError = policy.OnError{Invalid: policy.Reject, Unenforceable: policy.Ignore, Internal: policy.Ignore}
	invalid, unenforceable := &annotation.Error{Cause: "invalid"}, annotation.New(annotation.Identity{Reason: annotation.NoDisk}, &annotation.Problem{Cause: "unenforceable"})
	internal := errors.New("internal")
	for _, tt := range []struct {
		errs    []error
		want    error
		refuses bool
	}{
		{},
		{errs: []error{nil, nil}},
		{[]error{nil, invalid}, invalid, true},
		{[]error{unenforceable, invalid}, invalid, true},
		{[]error{internal, nil, unenforceable}, internal, false},
	} {
		got := pol.ForPod(nil, nil).First(tt.errs...)
		if !errors.Is(got, tt.want) {
			t.Errorf("%v: got %v, want %v", tt.errs, got, tt.want)
		}
		if refuses := pol.ForPod(nil, nil).Refuses(got); refuses != tt.refuses {
			t.Errorf("%v: refuses is %t", tt.errs, refuses)
		}
	}
	pol.Mode = policy.ModeObserve
	if pol.ForPod(nil, nil).Refuses(invalid) {
		t.Error("refuses in mode observe")
	}
}
