package plan

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/podfacts"
	"github.com/nri-blkio/nri-blkio/plugin/record"
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

// facts is a container with its writable layer on vda and a volume on vdb.
func facts(name string) policy.Container {
	return policy.Container{
		Name: name, MemoryLimited: true, Rootfs: blkio.Backing{FSType: "ext4", Disks: []blkio.Disk{vda}},
		Mounts: []policy.Mount{{Destination: "/data", Backing: &blkio.Backing{FSType: "ext4", Disks: []blkio.Disk{vdb}}}},
	}
}

// viewOf is the view of a pod whose containers run, as they were decided by the policy.
func viewOf(t *testing.T, pol *policy.Policy, annotations map[string]string, containers ...string) View {
	t.Helper()
	v := View{
		Pod: Pod{
			Namespace: "prod", Name: "db-0", UID: "u1", Cgroup: "pods/u1", Policy: pol.ForPod(&policy.PodFacts{}, annotation.Parse(annotations)),
		},
	}
	for _, name := range containers {
		c := facts(name)
		d, err := v.Pod.Policy.Container(c)
		v.Pod.Seen = append(v.Pod.Seen, c)
		v.Running = append(v.Running, Container{ID: "id-" + name, Name: name, Cgroup: "pods/u1/" + name, Desired: d, Err: err})
	}
	return v
}

// TestDecidedByFormerPolicy verifies that a container that a former policy decided has the mode of that policy
// after a reload. It counts as unlimited for its pod while its settings are only observed.
func TestDecidedByFormerPolicy(t *testing.T) {
	observing := policy.Default().WithMode(policy.ModeObserve)
	for _, tt := range []struct {
		former, now *policy.Policy
		want, pod   int // how many values are written
	}{
		{observing, policy.Default(), 0, 0},
		{policy.Default(), observing, 1, 0},
		{observing, observing, 0, 0},
		{policy.Default(), policy.Default(), 1, 1},
	} {
		v := viewOf(t, tt.former, map[string]string{limits + "containers": "rootfs wbps=1Mi"}, "a")
		v.Running[0].Policy = v.Pod.Policy
		p := New(under(tt.now, v))
		if a := p.Containers[0]; len(a.Want) != tt.want || a.Record.Observed != (tt.want == 0) || len(p.Pod.Want) != tt.pod {
			t.Errorf("%s, then %s: %v, record %+v, pod %v", tt.former.Mode, tt.now.Mode, a.Want, a.Record, p.Pod.Want)
		}
	}
}

// under is a view under another policy.
func under(pol *policy.Policy, v View) View {
	v.Pod.Policy = pol.ForPod(&policy.PodFacts{}, v.Pod.Policy.Request())
	return v
}

func text(s policy.Settings) string {
	var out []string
	for _, l := range s.Lines() {
		out = append(out, l.Text)
	}
	return strings.Join(out, ", ")
}

// TestNew covers the pod's and the containers' settings, and how they are recorded.
func TestNew(t *testing.T) {
	pol := policy.Default()
	got := New(viewOf(t, pol, map[string]string{
		limits + "containers": "* wbps=1Mi", limits + "container.b": "/data wbps=2Mi riops=10",
		limits + "pod-total": "rootfs wbps=max; /data wbps=1536Ki rbps=5Mi", weight + "pod-total": "50",
	}, "a", "b"))
	if want := "254:0 wbps=2097152, 254:16 rbps=5242880 wbps=1572864, default 50"; text(got.Pod.Want) != want {
		t.Errorf("pod %s, want %s", text(got.Pod.Want), want)
	}
	wants := map[string]string{"id-a": "254:0 wbps=1048576, 254:16 wbps=1048576", "id-b": "254:0 wbps=1048576, 254:16 wbps=2097152 riops=10"}
	for _, target := range got.Containers {
		if text(target.Want) != wants[target.Container] || target.Cgroup != "pods/u1/"+target.Record.Container {
			t.Errorf("%s: %s, want %s", target.Container, text(target.Want), wants[target.Container])
		}
		if r := target.Record; r.Kind != record.KindContainer || r.ContainerID != target.Container || text(r.Settings) != text(target.Want) || r.Error != "" {
			t.Errorf("%s: record %+v", target.Container, r)
		}
		if target.Room != record.Room(2, 0) {
			t.Errorf("%s: room %d", target.Container, target.Room)
		}
	}
	r := got.Pod.Record
	if r.Kind != record.KindPod || r.Pod != "db-0" || text(r.Settings) != text(got.Pod.Want) {
		t.Errorf("record of the pod: %+v", r)
	}
	if diff := cmp.Diff(map[blkio.Dev]string{vda.Dev: "vda", vdb.Dev: "vdb"}, r.Disks); diff != "" {
		t.Error(diff)
	}
	var kinds []string
	for _, s := range r.Settings {
		kinds = append(kinds, fmt.Sprintf("%s %s", s.Key, s.Source.Kind))
	}
	if want := "wbps backstop, rbps annotation, wbps annotation, default annotation"; strings.Join(kinds, ", ") != want {
		t.Errorf("sources %v, want %s", kinds, want)
	}
	if want := "254:0 wbps=max, 254:16 rbps=5242880 wbps=1572864, default 50"; text(got.Pod.Granted.Settings) != want {
		t.Errorf("granted %s, want %s", text(got.Pod.Granted.Settings), want)
	}
}

// TestRoomForEdit verifies that the record of a pod has room for an edit beside its own part, and that the records of the
// containers leave that room.
func TestRoomForEdit(t *testing.T) {
	v := viewOf(t, policy.Default(), nil, "a", "b", "c", "d", "e")
	v.Pod.Live.Edit = &podfacts.Edit{Sandbox: "s", Annotations: map[string]string{limits + "containers": strings.Repeat(" ", 20<<10)}}
	got, size := New(v), v.Pod.Live.Edit.Size()
	share := record.Room(5, size)
	if got.Pod.Room != share+size || share >= record.Room(5, 0) {
		t.Errorf("the pod has %d bytes, of which %d are for the edit, and each container %d", got.Pod.Room, size, share)
	}
	for _, c := range got.Containers {
		if c.Room != share {
			t.Errorf("%s has %d bytes, want %d", c.Container, c.Room, share)
		}
	}
}

// TestPodTarget covers the other conditions for settings on the pod's own cgroup.
func TestPodTarget(t *testing.T) {
	annotations := map[string]string{limits + "containers": "rootfs wbps=1Mi", limits + "pod-total": "/data rbps=5Mi"}
	noBackstop, observe := *policy.Default(), *policy.Default()
	noBackstop.Writeback.Backstop, observe.Mode = false, policy.ModeObserve
	const total = "254:16 rbps=5242880"
	for _, tt := range []struct {
		name    string
		pol     *policy.Policy
		change  func(*View)
		want    string
		ended   bool
		noPod   bool
		partial bool
	}{
		{name: "runs", pol: policy.Default(), want: "254:0 wbps=2097152, " + total},
		{name: "without the backstop", pol: &noBackstop, want: total},
		{name: "observed", pol: &observe},
		{name: "nothing runs", pol: policy.Default(), change: func(v *View) { v.Running = nil }, want: total, ended: true},
		{name: "nothing runs, without the backstop", pol: &noBackstop, change: func(v *View) { v.Running = nil }, want: total},
		{name: "drained", pol: policy.Default(), change: func(v *View) { v.Running, v.Drained = nil, true }},
		{name: "no cgroup of its own", pol: policy.Default(), change: func(v *View) { v.Pod.Cgroup = "" }, noPod: true},
		{name: "partial", pol: policy.Default(), change: func(v *View) { v.Partial = true }, want: "254:0 wbps=2097152, " + total, partial: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			v := viewOf(t, tt.pol, annotations, "a", "b")
			if tt.change != nil {
				tt.change(&v)
			}
			got := New(v).Pod
			if text(got.Want) != tt.want || got.Ended != tt.ended || got.Partial != tt.partial || (got.Cgroup == "") != tt.noPod {
				t.Errorf("%s, %+v, want %s", text(got.Want), got, tt.want)
			}
		})
	}
}

// TestWarnings verifies the warnings and errors in the records.
func TestWarnings(t *testing.T) {
	pol := policy.Default()
	v := viewOf(t, pol, map[string]string{limits + "containers": "rootfs wbps=1Mi; /nowhere wbps=1Mi", weight + "containers": "50"}, "a")
	v.Controls.Enabled = map[blkio.Dev]bool{}
	first := New(v)
	if w := first.Pod.Record.Warnings; len(w) != 0 {
		t.Errorf("warnings before all containers were created: %q, want none", w)
	}
	if w := first.Containers[0].Record.Warnings; len(w) != 1 || w[0] != weightIdle {
		t.Errorf("warnings %q", w)
	}
	if s := first.Containers[0].Record.Skipped; len(s) != 1 || !strings.HasPrefix(s[0], `"/nowhere": `) {
		t.Errorf("skipped %q", s)
	}
	v.Pod.Complete, v.Pod.Exits = true, []record.Exit{{Container: "init"}}
	second := New(v).Pod.Record
	if len(second.Warnings) != 0 || len(second.Exits) != 1 {
		t.Errorf("with a container of which only the end is known: %q", second.Warnings)
	}
	v.Pod.Exits = nil
	if w := New(v).Pod.Record.Warnings; len(w) != 1 || !strings.Contains(w[0], "/nowhere") {
		t.Errorf("warnings %q", w)
	}
}

// TestUndecided verifies that the earlier grants of a container stay while its disks are not known.
func TestUndecided(t *testing.T) {
	pol := policy.Default()
	v := viewOf(t, pol, map[string]string{limits + "containers": "rootfs wbps=1Mi"}, "a")
	v.Running[0].Undecided, v.Running[0].Partial, v.Running[0].Desired = true, true, policy.Desired{}
	v.Running[0].Spec = OCISpec{Own: setting(blkio.Wbps, 7)}
	got := New(v).Containers[0]
	if got.Record.Error != "limits not decided yet: its disks are resolved next" || !got.Partial || got.Stale != nil {
		t.Errorf("%+v", got)
	}
	v.Running[0].Err = errors.New("no answer")
	if got := New(v).Containers[0].Record.Error; got != "limits not decided yet: no answer" {
		t.Error(got)
	}
}

// TestKeepsPodGranted verifies that a stricter policy takes nothing from a pod that runs.
func TestKeepsPodGranted(t *testing.T) {
	pol := policy.Default()
	v := viewOf(t, pol, map[string]string{limits + "pod-total": "rootfs wbps=1Mi"}, "a")
	granted := New(v).Pod.Granted
	v.Pod.Granted = &granted
	strict := *pol
	strict.Floors.Bps = 2 << 20
	if got := New(under(&strict, v)).Pod; text(got.Want) != "254:0 wbps=1048576" || !strings.Contains(got.Record.Error, "limits.blkio.noderesource.dev/pod-total") {
		t.Errorf("%s, %q", text(got.Want), got.Record.Error)
	}
	strict.Mode = policy.ModeObserve
	if got := New(under(&strict, v)).Pod; got.Want != nil || got.Granted.Settings != nil {
		t.Errorf("observed: %s", text(got.Want))
	}
}

func setting(k blkio.Key, amount blkio.Amount) policy.Settings {
	dev := vda.Dev
	if !k.IsRate() {
		dev = blkio.Dev{}
	}
	return policy.Settings{{Value: blkio.Value{Address: blkio.Address{Key: k, Dev: dev}, Amount: amount}}}
}

// TestKept verifies that memory.high is given once.
func TestKept(t *testing.T) {
	all := policy.NewSettings(setting(blkio.Wbps, 5)[0], setting(blkio.Weight, 50)[0], setting(blkio.MemoryHigh, 7)[0])
	if got, want := text(Kept(all)), "254:0 wbps=5, default 50"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
