package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/sirupsen/logrus/hooks/test"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/inventory"
	"github.com/nri-blkio/nri-blkio/plugin/record"
)

// reaching is a plugin with a running container, and where its cgroups are.
func reaching(t *testing.T, value string, mounts ...inventory.Mount) (n *Node, s *stacked, dir string) {
	t.Helper()
	h, dir := tree(t, podCgroup, cgroupOf("a"))
	n, s = newNode(t, h), newStacked()
	n.storage = s
	if err := n.start(t.Context(), sandbox(map[string]string{limitsKey + "container.a": value}), ctr("a", mounts...), true); err != nil {
		t.Fatal(err)
	}
	return n, s, dir
}

func (s *stacked) lines(t *testing.T, n *Node) map[blkio.Dev]blkio.Limits {
	t.Helper()
	for _, g := range n.peek().groups {
		return n.planFor(g.groupIdentity).Containers[0].Want.DevLimits()
	}
	t.Fatal("no group")
	return nil
}

func TestUndeclaredIsLimited(t *testing.T) {
	n, s, dir := reaching(t, "* wbps=1Mi; /data wbps=2Mi", bind("/mnt/data", "/data", "rbind"))
	log, hook := test.NewNullLogger()
	n.log = log
	logged := func() (count int) {
		for _, e := range hook.AllEntries() {
			if strings.HasPrefix(e.Message, "Limiting an undeclared disk") && e.Data["container"] == "a" && e.Data["disk"] == "plugged" && e.Data["dev"] == "8:16" {
				count++
			}
		}
		return count
	}
	one, two := blkio.Limits{blkio.Wbps: 1 << 20}, blkio.Limits{blkio.Wbps: 2 << 20}
	own := map[blkio.Dev]blkio.Limits{rootDisk.Dev: one, dataDisk.Dev: two}
	want := map[blkio.Dev]blkio.Limits{rootDisk.Dev: one, dataDisk.Dev: two, plugged.Dev: one}
	pass := func(want map[blkio.Dev]blkio.Limits) {
		t.Helper()
		n.pass(t.Context())
		if diff := cmp.Diff(want, s.lines(t, n)); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
	}
	stat := filepath.Join(dir, cgroupOf("a"), "io.stat")
	pass(own) // without the file, as before the controller is there
	write(t, stat, moved(inventory.MinUsage, "254:0", "254:16", "8:0"))
	pass(own)
	write(t, stat, moved(inventory.MinUsage, "254:0", "8:16"))
	pass(want)
	pass(want)
	if count := logged(); count != 1 {
		t.Errorf("the undeclared disk is logged %d times, want once", count)
	}
	r, err := record.Read(n.cgroups.Cgroup(cgroupOf("a")), record.KindContainer)
	if err != nil || r == nil || len(r.Settings) == 0 || r.Settings[0].Dev != plugged.Dev || r.Disks[plugged.Dev] != "plugged" || r.Settings[0].Source.Target != "*" {
		t.Errorf("recorded is %+v (%v)", r, err)
	}
	if got := n.peek().pods["sb1"].seen()[0].Undeclared; !slices.Equal(got, []blkio.Disk{plugged}) {
		t.Errorf("the pod's total is of %v", got)
	}
	write(t, stat, "what\n") // the file is unreadable now, and the known disks stay
	pass(want)
	write(t, stat, moved(inventory.MinUsage, "254:0", "8:16", "65:0"))
	s.fails = errors.New("read swaps: no")
	pass(want)
	s.fails = nil
	write(t, stat, moved(inventory.MinUsage, "254:0", "8:16"))
	n.MountsChanged()
	pass(want)
	write(t, stat, moved(inventory.MinUsage, "254:0"))
	pass(own) // the disk has left, and the number may be another's
}

// TestUndeclaredByAnyWay verifies that a container's undeclared disks are kept by each resolution of its mounts,
// including those of each pass.
func TestUndeclaredByAnyWay(t *testing.T) {
	n, s, dir := reaching(t, "* wbps=1Mi", bind("/mnt/data", "/data", "rbind", "rslave"))
	write(t, filepath.Join(dir, cgroupOf("a"), "io.stat"), moved(inventory.MinUsage, "8:16"))
	for range 3 {
		n.searchAgain(func(c *snapshot) bool { return c.disks.Follows() })
		n.pass(t.Context())
		if _, ok := s.lines(t, n)[plugged.Dev]; !ok {
			t.Errorf("limited are %v", s.lines(t, n))
		}
	}
}

// TestUndeclaredAfterRestart verifies that a limit of an earlier process is not lifted while the container has the
// disk, or while that is unknown.
func TestUndeclaredAfterRestart(t *testing.T) {
	const held = "8:16 rbps=max wbps=1048576"
	used := moved(inventory.MinUsage, "8:16")
	for name, tt := range map[string]struct {
		stat  string
		fails error
		lifts bool
	}{
		"it is found again":              {stat: used},
		"swap is not known":              {stat: used + moved(inventory.MinUsage, "65:0"), fails: errors.New("read swaps: no")},
		"no line can be read":            {stat: "what\n"},
		"something is above it now":      {stat: used + moved(4096, "253:1")},
		"the node has mounted it since":  {stat: used + moved(inventory.MinUsage, "8:80")},
		"the disk has left":              {stat: moved(inventory.MinUsage, "254:0"), lifts: true},
		"the number is of an unused one": {stat: moved(0, "8:16"), lifts: true},
	} {
		t.Run(name, func(t *testing.T) {
			n, s, dir := reaching(t, "* wbps=1Mi")
			stat := filepath.Join(dir, cgroupOf("a"), "io.stat")
			write(t, stat, used)
			n.pass(t.Context())

			next := newNode(t, n.cgroups)
			next.storage = s
			s.fails = tt.fails
			write(t, stat, tt.stat)
			c := ctr("a")
			c.State = Running
			next.Synchronize([]*Sandbox{sandbox(map[string]string{limitsKey + "container.a": "* wbps=1Mi"})}, []*Container{c})
			write(t, filepath.Join(dir, cgroupOf("a"), "io.max"), held+" riops=max wiops=max\n254:0 rbps=max wbps=1048576 riops=max wiops=max\n")
			next.settle(t.Context())
			got := read(t, filepath.Join(dir, cgroupOf("a"), "io.max"))
			if strings.HasPrefix(got, held) == tt.lifts {
				t.Errorf("lifted: %v, want %v: %q", !tt.lifts, tt.lifts, got)
			}
			// The limits of the record are still in force when the disks are known again.
			s.fails = nil
			if write(t, stat, used); !tt.lifts {
				next.pass(t.Context())
				if got := s.lines(t, next); got[plugged.Dev] != (blkio.Limits{blkio.Wbps: 1 << 20}) {
					t.Errorf("limited are %v", got)
				}
			}
		})
	}
}

// TestUndeclaredAfterRestartOfPod is TestUndeclaredAfterRestart for a limit of the pod as a whole.
func TestUndeclaredAfterRestartOfPod(t *testing.T) {
	h, dir := tree(t, podCgroup, cgroupOf("a"))
	n, s := newNode(t, h), newStacked()
	n.storage = s
	sb := sandbox(map[string]string{limitsKey + "pod-total": "* wbps=1Mi"})
	if err := n.start(t.Context(), sb, ctr("a"), true); err != nil {
		t.Fatal(err)
	}
	stat := filepath.Join(dir, cgroupOf("a"), "io.stat")
	write(t, stat, moved(inventory.MinUsage, "8:16"))
	n.pass(t.Context())

	next := newNode(t, h)
	next.storage = s
	write(t, stat, moved(inventory.MinUsage, "8:16")+moved(4096, "253:1")) // something is above it now
	c := ctr("a")
	c.State = Running
	next.Synchronize([]*Sandbox{sb}, []*Container{c})
	next.pass(t.Context())
	for _, g := range next.peek().groups {
		if got := next.planFor(g.groupIdentity).Pod.Want.DevLimits()[plugged.Dev]; got != (blkio.Limits{blkio.Wbps: 1 << 20}) {
			t.Errorf("the pod's limit is %v", got)
		}
	}
}

// TestUndeclaredHangs verifies that a disk whose parts cannot be read delays the containers that use it, and no
// others. It is logged once.
func TestUndeclaredHangs(t *testing.T) {
	n, s, dir := reaching(t, "* wbps=1Mi")
	log, hook := test.NewNullLogger()
	n.log = log
	s.hangs = blkio.Dev{Major: 7}
	c, u := n.peek().pods["sb1"].containers["id-a"], n.undeclared(newSharedReads(&n.environment))
	stat := filepath.Join(dir, cgroupOf("a"), "io.stat")
	write(t, stat, moved(inventory.MinUsage, "7:0", "8:16"))
	for range 3 {
		if u.compareUse(t.Context(), c.ref) || c.use.seen.Undeclared != nil {
			t.Errorf("found %v", c.use.seen.Undeclared)
		}
		n.tell(c.pod.group)
	}
	if count := len(hook.AllEntries()); count != 1 || !strings.Contains(fmt.Sprint(hook.LastEntry().Data["error"]), "find the disks below 7:0: no answer") {
		t.Errorf("%d lines, the last is %v", count, hook.LastEntry())
	}
	if s.asked > 5 { // root disk, two disks, swap, and the disks below that one: once each
		t.Errorf("the disks below others were read %d times, want at most 5", s.asked)
	}
	write(t, stat, moved(inventory.MinUsage, "8:16"))
	if !u.compareUse(t.Context(), c.ref) {
		t.Error("a container that does not use the hanging disk is not compared")
	}
}

// TestOnlyStarIsRead verifies that io.stat is read for containers with a "*" only.
func TestOnlyStarIsRead(t *testing.T) {
	for _, value := range []string{"rootfs wbps=1Mi", "/data wbps=1Mi; rootfs wbps=2Mi"} {
		n, s, dir := reaching(t, value, bind("/mnt/data", "/data"))
		write(t, filepath.Join(dir, cgroupOf("a"), "io.stat"), moved(inventory.MinUsage, "8:16"))
		before := s.lines(t, n)
		n.pass(t.Context())
		if diff := cmp.Diff(before, s.lines(t, n)); diff != "" || s.asked > 0 {
			t.Errorf("%s: the disks below %d disks were read, want none; limits -want +got:\n%s", value, s.asked, diff)
		}
	}
}

// TestUndeclaredAndRemoved verifies that a container whose cgroup was removed keeps its known disks, and that a
// container for which a pass had no time is left for the next pass.
func TestUndeclaredAndRemoved(t *testing.T) {
	n, _, dir := reaching(t, "* wbps=1Mi")
	c := n.peek().pods["sb1"].containers["id-a"]
	write(t, filepath.Join(dir, cgroupOf("a"), "io.stat"), moved(inventory.MinUsage, "8:16"))
	compare := func(ctx context.Context) bool {
		u := n.undeclared(newSharedReads(&n.environment))
		return u.compareUse(ctx, c.ref)
	}
	late, cancel := context.WithCancel(t.Context())
	cancel()
	if compare(late) || c.use.seen.Undeclared != nil {
		t.Errorf("compared after the end of the context: %v", c.use.seen.Undeclared)
	}
	if !compare(t.Context()) || compare(t.Context()) {
		t.Error("a change is not reported exactly once")
	}
	if err := os.RemoveAll(filepath.Join(dir, cgroupOf("a"))); err != nil {
		t.Fatal(err)
	}
	if _, err := n.cgroups.Cgroup(cgroupOf("a")).ReadIOStat(); !errors.Is(err, blkio.ErrGone) {
		t.Fatal(err)
	}
	if compare(t.Context()) || !slices.Equal(c.use.seen.Undeclared, []blkio.Disk{plugged}) {
		t.Errorf("undeclared disks after the cgroup was removed: %v, want the known one", c.use.seen.Undeclared)
	}
	n.Stopped("sb1", "id-a")
	if compare(t.Context()) {
		t.Error("an ended container was compared")
	}
}

// TestUndeclaredByCgroupAbove verifies that a container's own counters are read once a cgroup above it has used a
// disk that the container does not declare, and from then on.
func TestUndeclaredByCgroupAbove(t *testing.T) {
	n, s, dir := reaching(t, "* wbps=1Mi")
	one := blkio.Limits{blkio.Wbps: 1 << 20}
	own := map[blkio.Dev]blkio.Limits{rootDisk.Dev: one}
	both := map[blkio.Dev]blkio.Limits{rootDisk.Dev: one, plugged.Dev: one}
	above, pod := filepath.Dir(podCgroup), podCgroup
	write(t, filepath.Join(dir, cgroupOf("a"), "io.stat"), moved(inventory.MinUsage, "254:0", "8:16"))
	for i, step := range []struct {
		cgroup, stat string
		want         map[blkio.Dev]blkio.Limits
	}{
		{above, moved(inventory.MinUsage, "254:0"), own},
		{above, moved(inventory.MinUsage, "254:0") + moved(0, "8:16"), own}, // a flush
		{pod, moved(inventory.MinUsage, "254:0"), own},
		{above, moved(inventory.MinUsage, "254:0", "8:16"), own}, // another pod's
		{pod, moved(inventory.MinUsage, "254:0", "8:16"), both},
		{above, moved(inventory.MinUsage, "254:0"), both},
	} {
		write(t, filepath.Join(dir, step.cgroup, "io.stat"), step.stat)
		n.pass(t.Context())
		if diff := cmp.Diff(step.want, s.lines(t, n)); diff != "" {
			t.Errorf("step %d: -want +got:\n%s", i, diff)
		}
	}
}
