package node

import (
	"io"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/sirupsen/logrus"
	logtest "github.com/sirupsen/logrus/hooks/test"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/plugin/podfacts"
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
	l.SetLive("u1", &podfacts.Facts{Namespace: "prod", Name: "db-0", Annotations: annotationsOf(pairs...)})
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

// TestUnknownWithoutEdit verifies that annotations that are too large to be passed on, and that may be those of the pod's
// creation, are a warning, and an error once an edit is certain.
func TestUnknownWithoutEdit(t *testing.T) {
	for _, size := range []int{30 << 10, 40 << 10} { // the longer ones are not kept
		l := newLiveNode(t)
		sb := sandbox(annotationsOf(limitsKey+"containers", "rootfs wbps=2Mi"+strings.Repeat(" ", size)))
		l.run(sb, "a", "b")
		unknown := &podfacts.Facts{Namespace: "prod", Name: "db-0", Omitted: map[string]string{podfacts.PartAnnotations: "99999 bytes"}}
		want := func(when, failure string, warned bool) {
			t.Helper()
			l.pass(t.Context())
			r := recordOf(t, l.Node, podCgroup)
			if has := slices.Contains(r.Warnings, "an edit of the annotations has no effect while the pod runs: too many annotations of this domain: 99999 bytes"); r.Error != failure || has != warned {
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
		want("edited", "the annotations were edited, and those before stay in force: too many annotations of this domain: 99999 bytes", false)
		if got := scrape(t, l.Node)["live_changes_total{rejected}"]; got != 0 {
			t.Errorf("%v rejections are counted", got)
		}
	}
}
