package node

import (
	"errors"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/sirupsen/logrus"
	logtest "github.com/sirupsen/logrus/hooks/test"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/policy"
)

// liveNode is a node with a kernel that merges lines of io.max, and the containers a and b of the pod u1.
type liveNode struct {
	*Node
	t      testing.TB
	k      *modelKernel
	tree   *cgroupfs.Hierarchy
	writes []string                // of the plugin, without the path above the cgroup
	refuse func(name string) error // returns the error of a write to a file; nil if none fails
	logged *logtest.Hook
}

func newLiveNode(t testing.TB) *liveNode {
	t.Helper()
	l := &liveNode{t: t, k: newModelKernel(t)}
	for _, cgroup := range []string{podCgroup, cgroupOf("a"), cgroupOf("b")} {
		l.k.make(cgroup, true)
	}
	tree, err := cgroupfs.OpenFakeTree(l.k.dir, func(name, data string) error {
		if l.refuse != nil {
			if err := l.refuse(name); err != nil {
				return err
			}
		}
		l.writes = append(l.writes, path.Base(path.Dir(name))+" "+data)
		return l.k.write(name, data)
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tree.Close() })
	l.tree = tree
	l.restart(policy.Default())
	return l
}

// restart replaces the process of the plugin. The caller lists what runs.
func (l *liveNode) restart(pol *policy.Policy) {
	l.t.Helper()
	l.Node = newNode(l.t, l.tree)
	l.Reload(pol)
	log, hook := logtest.NewNullLogger()
	log.SetOutput(io.Discard)
	log.SetLevel(logrus.InfoLevel)
	l.log, l.logged = log, hook
}

// run creates and starts containers of a pod.
func (l *liveNode) run(sb *Sandbox, names ...string) {
	l.t.Helper()
	for _, name := range names {
		c := ctr(name, bind("/mnt/data/x", "/data"), bind("/mnt/mem/x", "/mem"))
		s := session{l.Node, noDeadline}
		if _, err := s.CreateContainer(l.t.Context(), sb, c); err != nil {
			l.t.Fatal(err)
		}
		if err := s.StartContainer(l.t.Context(), sb, c); err != nil {
			l.t.Fatal(err)
		}
	}
}

// list lists the running containers of a pod to the plugin.
func (l *liveNode) list(sb *Sandbox, names ...string) {
	var ctrs []*Container
	for _, name := range names {
		c := listed(name, isRunning)
		c.Spec = specOf(name, bind("/mnt/data/x", "/data"), bind("/mnt/mem/x", "/mem"))
		ctrs = append(ctrs, c)
	}
	l.Synchronize([]*Sandbox{sb}, ctrs)
	l.pass(l.t.Context())
}

// edit is an edit of the pod's annotations at the API server, given as KEY, VALUE..., and what follows from it.
func (l *liveNode) edit(pairs ...string) {
	l.SetLive("u1", &Live{Namespace: "prod", Name: "db-0", Annotations: annotationsOf(pairs...)})
	l.pass(l.t.Context())
}

func annotationsOf(pairs ...string) map[string]string {
	out := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		out[pairs[i]] = pairs[i+1]
	}
	return out
}

// want compares wbps on the root disk, in bytes; blkio.Unset is no limit.
func (l *liveNode) want(when string, want map[string]blkio.Amount) {
	l.t.Helper()
	for cgroup, rate := range want {
		if got := finite(l.k.has(cgroup)[rootDisk.Dev])[blkio.Wbps]; got != rate {
			l.t.Errorf("%s: %s has wbps %v, want %v", when, path.Base(cgroup), got, rate)
		}
	}
}

// all returns the limits that two containers with these limits and their pod have.
func all(a, b blkio.Amount) map[string]blkio.Amount {
	out := map[string]blkio.Amount{cgroupOf("a"): a, cgroupOf("b"): b, podCgroup: a + b}
	if a == 0 || b == 0 {
		out[podCgroup] = 0
	}
	return out
}

const mi = 1 << 20

// TestLiveEdit verifies that edited annotations apply to running containers and to the backstop of their pod, that no
// other values than the old and the new ones are written, and that limits go with their annotation.
func TestLiveEdit(t *testing.T) {
	l := newLiveNode(t)
	l.run(sandbox(annotationsOf(limitsKey+"containers", "rootfs wbps=2Mi")), "a", "b")
	l.want("at first", all(2*mi, 2*mi))
	l.edit(limitsKey+"containers", "rootfs wbps=2Mi")
	if got := scrape(t, l.Node)["live_changes_total{applied}"]; got != 0 {
		t.Errorf("the annotations of the runtime count as %v edits", got)
	}
	l.writes = nil
	l.edit(limitsKey+"containers", "rootfs wbps=8Mi")
	l.want("raised", all(8*mi, 8*mi))
	for _, w := range l.writes {
		if !strings.Contains(w, "wbps=8388608") && !strings.Contains(w, "wbps=16777216") {
			t.Errorf("raising the limit wrote %q", w)
		}
	}
	if first := l.writes[0]; !strings.HasPrefix(first, "kubepods-pod1.slice") {
		t.Errorf("the limit of the pod is raised after %q", first)
	}
	l.writes = nil
	l.edit(limitsKey+"containers", "rootfs wbps=1Mi", limitsKey+"container.b", "rootfs wbps=3Mi")
	l.want("lowered", all(mi, 3*mi))
	if last := l.writes[len(l.writes)-1]; !strings.HasPrefix(last, "kubepods-pod1.slice") {
		t.Errorf("the limit of the pod is lowered before %q", last)
	}
	if r := recordOf(t, l.Node, cgroupOf("b")); len(r.Settings) == 0 || r.Settings[0].Source.Name != limitsKey+"container.b" {
		t.Errorf("the record of b has %+v", r.Settings)
	}
	l.edit()
	l.want("removed", all(0, 0))
	if got := scrape(t, l.Node); got["live_changes_total{applied}"] != 3 || got["live_changes_total{rejected}"] != 0 {
		t.Errorf("metrics: %v applied, %v rejected", got["live_changes_total{applied}"], got["live_changes_total{rejected}"])
	}
	l.edit(limitsKey+"pod-total", "rootfs wbps=5Mi; /data wbps=6Mi") // a volume that no annotation named before
	l.want("pod-total", map[string]blkio.Amount{podCgroup: 5 * mi, cgroupOf("a"): 0})
	if got := l.k.has(podCgroup)[dataDisk.Dev][blkio.Wbps]; got != 6*mi {
		t.Errorf("pod-total of a volume: %v", got)
	}
}

// TestInvalidEdit verifies that an edit changes nothing, its valid parts included, if one container would be rejected with
// it, and that the record of the pod has the reason for as long as that holds.
func TestInvalidEdit(t *testing.T) {
	const valid = "rootfs wbps=2Mi"
	for name, tt := range map[string]struct{ key, value, want string }{
		"grammar":          {"container.a", "rootfs wpbs=1Mi", `unknown key "wpbs"`},
		"annotation":       {"pod", "rootfs wbps=1Mi", "pod-total"},
		"floor":            {"container.a", "rootfs wbps=1Ki", "floor"},
		"no mount":         {"container.b", "/nowhere wbps=1Mi", "/nowhere"},
		"unenforceable":    {"container.b", "/mem wbps=1Mi", "tmpfs"},
		"conflict":         {"container.a", "/data wbps=1Mi; @data wbps=2Mi", "data"},
		"total of one pod": {"pod-total", "/mem wbps=1Mi", "tmpfs"},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLiveNode(t)
			l.run(sandbox(annotationsOf(limitsKey+"containers", valid)), "a", "b")
			for range 2 {
				l.edit(limitsKey+"containers", "rootfs wbps=7Mi", limitsKey+tt.key, tt.value)
				l.want("invalid", all(2*mi, 2*mi))
			}
			r := recordOf(t, l.Node, podCgroup)
			if !strings.HasPrefix(r.Error, "the annotations were edited, and those before stay in force: ") || !strings.Contains(r.Error, tt.want) {
				t.Errorf("the record of the pod has the error %q", r.Error)
			}
			if got := scrape(t, l.Node)["live_changes_total{rejected}"]; got != 1 {
				t.Errorf("%v rejections are counted", got)
			}
			if n := len(l.logged.AllEntries()); l.logged.LastEntry().Message != "Rejected an edit of a running pod" {
				t.Errorf("%d lines are logged, the last one is %q", n, l.logged.LastEntry().Message)
			}
			l.edit(limitsKey+"containers", valid)
			if r := recordOf(t, l.Node, podCgroup); r.Error != "" {
				t.Errorf("the edit was taken back, and the record has %q", r.Error)
			}
			l.edit(limitsKey+"containers", "rootfs wbps=7Mi")
			l.want("valid", all(7*mi, 7*mi))
		})
	}
}

// TestUnknownEdit verifies that annotations that are too large to be passed on count as an invalid edit.
func TestUnknownEdit(t *testing.T) {
	l := newLiveNode(t)
	l.run(sandbox(annotationsOf(limitsKey+"containers", "rootfs wbps=2Mi")), "a", "b")
	l.SetLive("u1", &Live{Namespace: "prod", Name: "db-0", Err: errors.New("30000 bytes (maximum 28672)")})
	l.pass(t.Context())
	l.want("unknown", all(2*mi, 2*mi))
	if r := recordOf(t, l.Node, podCgroup); !strings.Contains(r.Error, "maximum 28672") {
		t.Errorf("the record has %q", r.Error)
	}
	l.SetLive("u1", nil)
	l.pass(t.Context())
	l.want("forgotten", all(2*mi, 2*mi))
	if r := recordOf(t, l.Node, podCgroup); r.Error != "" {
		t.Errorf("forgotten: the record has %q", r.Error)
	}
}

// TestUnknownWithoutEdit verifies that annotations that are too large to be passed on, and that may be those of the pod's
// creation, are a warning, and an error once an edit is certain.
func TestUnknownWithoutEdit(t *testing.T) {
	for _, size := range []int{30 << 10, 40 << 10} { // the longer ones are not kept
		l := newLiveNode(t)
		sb := sandbox(annotationsOf(limitsKey+"containers", "rootfs wbps=2Mi"+strings.Repeat(" ", size)))
		l.run(sb, "a", "b")
		unknown := &Live{
			Namespace: "prod", Name: "db-0", Err: errors.New("too many annotations"),
			CanBeKnown: func(a map[string]string) bool { return len(a[limitsKey+"containers"]) < 28<<10 },
		}
		want := func(when, failure string, warned bool) {
			t.Helper()
			l.pass(t.Context())
			r := recordOf(t, l.Node, podCgroup)
			if has := slices.Contains(r.Warnings, "an edit of the annotations has no effect while the pod runs: too many annotations"); r.Error != failure || has != warned {
				t.Errorf("%d bytes, %s: the record has %q, %q", size, when, r.Error, r.Warnings)
			}
		}
		want("without a document", "", false)
		l.SetLive("u1", unknown)
		want("not edited", "", true)
		l.want("not edited", all(2*mi, 2*mi))
		l.restart(policy.Default())
		l.SetLive("u1", unknown)
		l.list(sb, "a", "b")
		want("restarted", "", true)
		l.edit(limitsKey+"containers", "rootfs wbps=3Mi")
		want("known again", "", false)
		l.want("known again", all(3*mi, 3*mi))
		l.SetLive("u1", unknown)
		want("edited", "the annotations were edited, and those before stay in force: too many annotations", false)
		if got := scrape(t, l.Node)["live_changes_total{rejected}"]; got != 0 {
			t.Errorf("%v rejections are counted", got)
		}
	}
}

// TestEditRetried verifies that a rejected edit counts as soon as a new policy allows it.
func TestEditRetried(t *testing.T) {
	l := newLiveNode(t)
	sb := sandbox(annotationsOf(limitsKey+"containers", "rootfs wbps=2Mi"))
	l.run(sb, "a", "b")
	l.edit("class.blkio.noderesource.dev/containers", "bronze")
	l.want("no such class", all(2*mi, 2*mi))
	l.Reload(rules(t, ""))
	l.pass(t.Context())
	l.want("the class exists", all(20*mi, 20*mi))
	l.Reload(rules(t, "mode: observe\n"))
	l.pass(t.Context())
	l.edit(limitsKey+"containers", "rootfs wpbs=2Mi")
	if r := recordOf(t, l.Node, podCgroup); !strings.HasPrefix(r.Error, "the annotations were edited") || !r.Observed {
		t.Errorf("observed: the record has %q, observed %v", r.Error, r.Observed)
	}
}

// TestEditOfBystander verifies that an annotation that is added to a running pod limits it, that one that is invalid does
// not, and that a document of another pod has no effect.
func TestEditOfBystander(t *testing.T) {
	l := newLiveNode(t)
	sb := sandbox(nil)
	l.run(sb, "a", "b")
	l.SetLive("u1", &Live{Namespace: "prod", Name: "db-1", Annotations: annotationsOf(limitsKey+"containers", "rootfs wbps=1Mi")})
	l.SetLive("u1", &Live{Namespace: "dev", Name: "db-0", Annotations: annotationsOf(limitsKey+"containers", "rootfs wbps=1Mi")})
	l.SetLive("u2", &Live{Namespace: "prod", Name: "db-0", Annotations: annotationsOf(limitsKey+"containers", "rootfs wbps=1Mi")})
	l.pass(t.Context())
	if n := len(l.peek().pods); n != 0 {
		t.Errorf("%d pods are known", n)
	}
	l.edit(limitsKey+"containers", "rootfs wpbs=4Mi")
	l.want("invalid", all(0, 0))
	if r := recordOf(t, l.Node, podCgroup); r == nil || !strings.Contains(r.Error, "wpbs") {
		t.Errorf("the record is %+v", r)
	}
	l.edit(limitsKey+"containers", "rootfs wbps=4Mi")
	l.want("added", all(4*mi, 4*mi))
}

// TestLiveAtCreate verifies that a new pod is soon limited by what the API server knows, whether the runtime reports older
// annotations, none, or invalid ones by which its first container is rejected.
func TestLiveAtCreate(t *testing.T) {
	for name, reported := range map[string]map[string]string{
		"none": nil, "older": annotationsOf(limitsKey+"containers", "rootfs wbps=2Mi"), "invalid": annotationsOf(limitsKey+"containers", "rootfs wpbs=2Mi"),
	} {
		l := newLiveNode(t)
		l.Synchronize(nil, nil)
		l.SetLive("u1", &Live{Namespace: "prod", Name: "db-0", Annotations: annotationsOf(limitsKey+"containers", "rootfs wbps=4Mi")})
		sb := sandbox(reported)
		if name == "invalid" {
			if _, err := l.create(t.Context(), sb, ctr("a"), false); err == nil {
				t.Error("the container is not rejected by the annotations of the runtime")
			}
			l.pass(t.Context())
		}
		l.run(sb, "a", "b")
		l.pass(t.Context())
		l.want(name, all(4*mi, 4*mi))
	}
	l := newLiveNode(t)
	sb := sandbox(annotationsOf(limitsKey+"containers", "rootfs wpbs=2Mi"))
	if _, err := l.create(t.Context(), sb, ctr("a"), false); err == nil {
		t.Fatal("the container is not rejected")
	}
	l.edit(limitsKey+"containers", "rootfs wbps=3Mi")
	l.run(sb, "a", "b")
	l.want("edited", all(3*mi, 3*mi))
	// The annotations of a running pod are invalid now. Its next container starts by those before.
	l.edit(limitsKey+"containers", "rootfs wpbs=3Mi")
	l.Stopped("sb1", "id-b")
	l.Removed("sb1", "id-b")
	l.run(sb, "b")
	l.want("again", all(3*mi, 3*mi))
}

// TestLiveLabels verifies that changed labels select another rule for a running pod, also for one that no rule selected
// before, and that the labels of the runtime itself stay.
func TestLiveLabels(t *testing.T) {
	l := newLiveNode(t)
	l.policy.Store(rules(t, inProd))
	sb := sandbox(nil)
	sb.Labels = map[string]string{"tier": "web", "io.kubernetes.pod.name": "db-0"}
	l.run(sb, "a", "b")
	set := func(labels map[string]string) {
		l.SetLive("u1", &Live{Namespace: "prod", Name: "db-0", Labels: labels})
		l.pass(t.Context())
	}
	set(map[string]string{"tier": "web"})
	l.want("at first", all(0, 0))
	set(map[string]string{"tier": "batch"})
	l.want("batch", all(20*mi, 20*mi))
	if got := l.peek().pods["sb1"].request.now.Load().facts.Labels; !maps.Equal(got, map[string]string{"tier": "batch", "io.kubernetes.pod.name": "db-0"}) {
		t.Errorf("labels %v", got)
	}
	set(nil) // unknown
	l.want("unknown", all(20*mi, 20*mi))
	l.SetLive("u1", &Live{Namespace: "prod", Name: "db-0", Labels: map[string]string{"tier": "web"}, Annotations: annotationsOf(limitsKey+"containers", "rootfs wpbs=1Mi")})
	l.pass(t.Context())
	l.want("web", all(0, 0)) // the labels count although the annotations do not
}
