package shares

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
)

// wantSkipped makes a pass that skips these cgroups and has no other error.
func (k *kernel) wantSkipped(disk blkio.Dev, paths ...string) {
	k.t.Helper()
	r, err := k.tryPass(disk)
	if r.Shares == nil {
		k.t.Fatalf("no shares: %v", err)
	}
	var got []string
	for _, s := range r.Skipped {
		got = append(got, s.Path)
	}
	if !slices.Equal(got, paths) || err != nil && paths == nil {
		k.t.Errorf("skipped %q, want %q: %v", got, paths, err)
	}
}

// TestUnreadablePod verifies that a pod with a cgroup that cannot be read from the start keeps no other pod
// from its weight. It gets its own weight once it can be read.
func TestUnreadablePod(t *testing.T) {
	for _, file := range []string{podA + "/io.stat", podA + "/io.weight", a + "/io.weight"} {
		t.Run(file, func(t *testing.T) {
			k := threePods(t)
			text := k.read(file)
			k.put(file, "nonsense\n")
			path := filepath.Dir(file)
			k.wantSkipped(vda, path)
			k.use(vda, b, c)
			k.put(file, "nonsense\n")
			k.wantSkipped(vda, path)
			if got := k.read(burstable + "/io.weight"); got != "default 100\n254:0 900\n" {
				t.Errorf("the QoS class has %q", got)
			}
			if got := k.read(podB + "/io.weight"); got != "default 100\n254:0 900\n" {
				t.Errorf("the pod beside it has %q", got)
			}
			k.wantSkipped(vda, path) // it is named as long as it lasts
			k.put(file, text)
			k.use(vda, a, b, c)
			k.wantSkipped(vda)
			k.use(vda, a, b, c)
			k.wantSkipped(vda)
			if got := k.read(burstable + "/io.weight"); got != "default 100\n254:0 1100\n" {
				t.Errorf("the QoS class has %q once all can be read", got)
			}
			if got := k.read(podA + "/io.weight"); got != "default 100\n254:0 200\n" {
				t.Errorf("the pod has %q once it can be read", got)
			}
		})
	}
}

// TestUnreadableLater verifies that the facts of a cgroup are used until it is idle, and that its weight is
// removed with those of the others.
func TestUnreadableLater(t *testing.T) {
	k := threePods(t)
	k.pass(vda)
	k.use(vda, a, b)
	k.pass(vda)
	k.put(a+"/io.stat", "nonsense\n")
	k.use(vda, b)
	k.put(podA+"/io.stat", "254:0 rbytes=0 wbytes=0 rios=70 wios=0 dbytes=0 dios=0\n")
	k.wantSkipped(vda, a)
	if got := k.read(burstable + "/io.weight"); got != "default 100\n254:0 1100\n" {
		t.Errorf("the QoS class has %q", got)
	}
	if r, err := k.tryPass(); len(r.Skipped) != 1 {
		t.Errorf("without a disk: %v", err)
	}
	k.want(leaves(nil))
}

// TestRemovedMeanwhile verifies that a cgroup that is removed while it is read is no error. The kernel then
// fails a read of an open file with ENODEV, even if a new cgroup has the same name by then. It fails the
// opening of a file with ENOENT.
func TestRemovedMeanwhile(t *testing.T) {
	k := threePods(t)
	k.pass(vda)
	for _, err := range []error{
		&cgroupfs.CgroupError{Op: "read", Err: fmt.Errorf("%w: %w", blkio.ErrGone, unix.ENODEV)},
		&cgroupfs.CgroupError{Op: "read", Err: fmt.Errorf("%w: %w", blkio.ErrNoDevice, unix.ENODEV)},
		&cgroupfs.CgroupError{Op: "read", Err: fmt.Errorf("%w: %w", blkio.ErrNotSupported, unix.ENOENT)},
	} {
		if !isAway(err) {
			t.Errorf("%v is an error", err)
		}
	}
	if isAway(unix.EACCES) {
		t.Error("EACCES is no error")
	}
	for _, gone := range []string{a + "/io.stat", b + "/io.weight"} { // its directory is next
		if err := os.Remove(filepath.Join(k.dir, gone)); err != nil {
			t.Fatal(err)
		}
	}
	k.now = k.now.Add(allEvery)
	k.wantSkipped(vda)
	if err := os.RemoveAll(filepath.Join(k.dir, podA)); err != nil {
		t.Fatal(err)
	}
	k.now = k.now.Add(allEvery)
	k.wantSkipped(vda)
}

// TestUnreadableOutsidePods verifies that a cgroup outside pods that cannot be read does not count for the
// reserve, and keeps no pod from its weight.
func TestUnreadableOutsidePods(t *testing.T) {
	k := threePods(t)
	k.reserve = 2500
	k.put("system.slice/io.stat", "nonsense\n")
	k.wantSkipped(vda, "system.slice")
	if got := k.read("kubepods.slice/io.weight"); got != "default 100\n254:0 300\n" {
		t.Errorf("all pods have %q", got)
	}
	if got := k.read(podB + "/io.weight"); got != "default 100\n254:0 900\n" {
		t.Errorf("a pod has %q", got)
	}
	k.put("system.slice/io.stat", "")
	k.wantSkipped(vda)
}

// TestSkippedText verifies that one line names the first cgroup, however many there are.
func TestSkippedText(t *testing.T) {
	var all []Skipped
	for i := range 5 {
		all = append(all, Skipped{fmt.Sprint("pods/", i), &cgroupfs.CgroupError{Op: "read", Name: "io.stat", Cgroup: fmt.Sprint("pods/", i), Err: unix.EACCES}})
	}
	const want = "skip cgroup pods/0: read io.stat: permission denied (and 4 more)"
	if got := fmt.Sprint(skippedError(all)); got != want || skippedError(nil) != nil {
		t.Errorf("%s", got)
	}
	if got := (Skipped{"pods/x", errors.New("parse io.stat")}).String(); got != "skip cgroup pods/x: parse io.stat" {
		t.Errorf("%s", got)
	}
	pod := Skipped{Path: "pods/1"}
	if !pod.Has("pods/1") || !pod.Has("pods/1/c") || pod.Has("pods/10") || pod.Has("pods") {
		t.Error("Has is wrong")
	}
}
