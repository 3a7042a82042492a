package cgroupfs

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// openFiles returns how many descriptors the process has.
func openFiles(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

func lineOf(text string) []blkio.Line { return []blkio.Line{{File: blkio.IOMax, Text: text}} }

// TestLift verifies that limits are lifted on a container's cgroup and on those below it, some without an io
// controller.
func TestLift(t *testing.T) {
	h, dir := newHierarchy(t, map[string]string{
		"pod/c/cgroup.events": "populated 1\nfrozen 0\n", "pod/c/io.max": "",
		"pod/c/container/io.max": "", "pod/c/noio/cgroup.procs": "",
	})
	held, err := h.Cgroup("pod/c").hold()
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	if populated, err := held.populated(); !populated || err != nil {
		t.Errorf("populated: %v, %v", populated, err)
	}
	writeFiles(t, dir, map[string]string{"pod/c/cgroup.events": "populated 0\nfrozen 0\n"})
	if populated, err := held.populated(); populated || err != nil {
		t.Errorf("populated after the last process: %v, %v", populated, err)
	}
	checkError(t, held.Lift(lineOf("8:16 wbps=max")), "")
	for _, file := range []string{"pod/c/io.max", "pod/c/container/io.max"} {
		if got := readBack(t, dir, file); got != "8:16 wbps=max" {
			t.Errorf("%s is %q", file, got)
		}
	}
	// The kernel keeps an open file of a removed cgroup: the error is Lift's to classify.
	if err := os.RemoveAll(filepath.Join(dir, "pod/c")); err != nil {
		t.Fatal(err)
	}
	checkError(t, held.Lift(lineOf("8:16 wbps=max")), "")
	checkError(t, held.Lift(nil), "")
}

// TestLiftErrors verifies that a failure on a container's own cgroup is reported, with all
// lines tried, and one on a cgroup below is not.
func TestLiftErrors(t *testing.T) {
	h, dir := newHierarchy(t, map[string]string{"c/cgroup.events": "", "c/io.max": "", "c/below/io.max": ""})
	readOnly := func(name string) int {
		fd, err := unix.Open(filepath.Join(dir, name), unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		return fd
	}
	held, err := h.Cgroup("c").hold()
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	unix.Close(held.ioMax[1])
	held.ioMax[1] = readOnly("c/below/io.max")
	checkError(t, held.Lift(lineOf("8:16 wbps=max")), "")

	unix.Close(held.ioMax[0])
	held.ioMax[0] = readOnly("c/io.max")
	err = held.Lift([]blkio.Line{{File: blkio.IOMax, Text: "8:16 wbps=max"}, {File: blkio.IOMax, Text: "8:0 wbps=max"}})
	checkError(t, err, `write io.max "8:16 wbps=max": bad file descriptor (cgroup c)`+"\n"+
		`write io.max "8:0 wbps=max": bad file descriptor (cgroup c)`)
	if errors.Is(err, blkio.ErrGone) {
		t.Error("a cgroup that exists counts as removed")
	}
}

// TestHoldIsBounded verifies that a container that makes many cgroups does not use up the
// descriptors of the plugin, and that a hold that fails keeps none.
func TestHoldIsBounded(t *testing.T) {
	files := map[string]string{
		"many/cgroup.events": "populated 1\n", "many/io.max": "",
		"noevents/io.max": "", "noio/cgroup.events": "populated 1\n", "noio/below/io.max": "",
	}
	for i := range 5 * maxIDs {
		files[fmt.Sprintf("many/%d/io.max", i)] = ""
	}
	h, _ := newHierarchy(t, files)
	before := openFiles(t)
	held, err := h.Cgroup("many").hold()
	if err != nil {
		t.Fatal(err)
	}
	if got := openFiles(t) - before; got != maxIDs+1 || len(held.ioMax) != maxIDs {
		t.Errorf("%d descriptors, of io.max %d, want %d", got, len(held.ioMax), maxIDs)
	}
	held.Close()
	for name, want := range map[string]error{"noevents": blkio.ErrNotSupported, "noio": blkio.ErrNotSupported, "gone": blkio.ErrGone} {
		if _, err := h.Cgroup(name).hold(); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", name, err, want)
		}
	}
	if got := openFiles(t); got != before {
		t.Errorf("%d descriptors, before %d", got, before)
	}
}

// newWatch returns a watch, and closes it at the end of the test.
func newWatch(t *testing.T) *EmptyWatch {
	t.Helper()
	w, err := NewEmptyWatch()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

// TestAddFails verifies that a cgroup that cannot be watched is not left half added. A
// plain file takes no epoll, as under a kernel that has no such events.
func TestAddFails(t *testing.T) {
	h, _ := newHierarchy(t, map[string]string{"c/cgroup.events": "populated 1\n", "c/io.max": ""})
	w := newWatch(t)
	before := openFiles(t)
	if err := w.Add(h.Cgroup("c")); !errors.Is(err, unix.EPERM) || err.Error() != "watch cgroup c: operation not permitted" {
		t.Errorf("got %v", err)
	}
	if err := w.Add(h.Cgroup("gone")); !errors.Is(err, blkio.ErrGone) {
		t.Errorf("got %v", err)
	}
	if w.Len() != 0 || w.watches(h.Cgroup("c")) || openFiles(t) != before {
		t.Errorf("%d cgroups are watched, %d descriptors, before %d", w.Len(), openFiles(t), before)
	}
}

// fakeOpenCgroup returns an OpenCgroup that is reported to the watch when news is called, like a cgroup with a
// changed cgroup.events: out-of-band data is EPOLLPRI as well.
func fakeOpenCgroup(t *testing.T, c Cgroup) (held *OpenCgroup, news func()) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	here, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer here.Close()
	there, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { there.Close() })
	duplicate := func(conn net.Conn) int {
		f, err := conn.(*net.TCPConn).File()
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		return fd
	}
	sender := duplicate(there)
	t.Cleanup(func() { unix.Close(sender) })
	return &OpenCgroup{Cgroup: c, events: duplicate(here)}, func() {
		if err := unix.Sendto(sender, []byte{1}, unix.MSG_OOB, nil); err != nil {
			t.Error(err)
		}
	}
}

// TestRun verifies that a cgroup with news is passed to empty once, and that the watch then no longer has it.
// Run ends with its context.
func TestRun(t *testing.T) {
	h, _ := newHierarchy(t, map[string]string{"a/io.max": "", "b/io.max": ""})
	w := newWatch(t)
	a, aNews := fakeOpenCgroup(t, h.Cgroup("a"))
	b, _ := fakeOpenCgroup(t, h.Cgroup("b"))
	for _, held := range []*OpenCgroup{a, b} {
		if added, err := w.arm(held); !added || err != nil {
			t.Fatalf("%s: %v, %v", held.Path(), added, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	emptied, ended := make(chan *OpenCgroup, 4), make(chan error, 1)
	urgent := make(chan error, 1)
	go func() {
		ended <- w.Run(ctx, func(err error) { urgent <- err }, func(held *OpenCgroup) { emptied <- held })
	}()
	if err := <-urgent; err != nil && !errors.Is(err, unix.EPERM) {
		t.Errorf("priority: %v", err)
	}
	aNews()
	select {
	case held := <-emptied:
		if held != a {
			t.Errorf("got %s", held.Path())
		}
		held.Close()
	case <-time.After(time.Minute):
		t.Fatal("no event")
	}
	if w.Len() != 1 || w.watches(h.Cgroup("a")) || !w.watches(h.Cgroup("b")) {
		t.Errorf("%d cgroups are watched", w.Len())
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("Run returns %v", err)
	}
	if len(emptied) > 0 {
		t.Errorf("%s is empty, too", (<-emptied).Path())
	}
}

// TestRunEnded verifies that a Run whose context has ended returns, with cgroups to watch
// and without.
func TestRunEnded(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 20 { // the wake-up may come before, or while, Run waits
		w := newWatch(t)
		if err := w.Run(ctx, func(error) {}, func(*OpenCgroup) { t.Error("an event") }); !errors.Is(err, context.Canceled) {
			t.Fatalf("got %v", err)
		}
	}
}

// TestNews verifies the effect of a change of cgroup.events. A cgroup with a process stays; an empty one does
// not, nor one that cannot be read any more.
func TestNews(t *testing.T) {
	for _, tt := range []struct {
		events string
		closed bool
		want   bool
	}{
		{"populated 1\nfrozen 0\n", false, false},
		{"populated 1\nfrozen 1\n", false, false},
		{"populated 0\nfrozen 0\n", false, true},
		{"", false, true},
		{"populated 1\nfrozen 0\n", true, true}, // ENODEV of a removed cgroup
	} {
		h, _ := newHierarchy(t, map[string]string{"c/cgroup.events": tt.events, "c/io.max": ""})
		held, err := h.Cgroup("c").hold()
		if err != nil {
			t.Fatal(err)
		}
		w := newWatch(t)
		file := held.events
		if tt.closed {
			// A directory cannot be read.
			if held.events, err = unix.Open(t.TempDir(), unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
				t.Fatal(err)
			}
			unix.Close(file)
		}
		fd := int32(held.events)
		w.held[fd], w.path[held.path] = held, fd
		var emptied []*OpenCgroup
		w.onEvent(fd, func(held *OpenCgroup) { emptied = append(emptied, held) })
		if got := len(emptied) == 1; got != tt.want || (w.Len() == 0) != tt.want || w.watches(held.Cgroup) == tt.want {
			t.Errorf("%q: empty %v, want %v, %d are watched", tt.events, got, tt.want, w.Len())
		}
		if tt.want {
			held.Close()
			w.onEvent(fd, func(*OpenCgroup) { t.Errorf("%q: an event of a cgroup that is not watched", tt.events) })
		}
	}
}

// TestWatchTwice verifies that a cgroup is watched once, and its second OpenCgroup is not kept.
func TestWatchTwice(t *testing.T) {
	h, _ := newHierarchy(t, map[string]string{"c/cgroup.events": "populated 1\n", "c/io.max": ""})
	w := newWatch(t)
	first, _ := fakeOpenCgroup(t, h.Cgroup("c"))
	second, _ := fakeOpenCgroup(t, h.Cgroup("c"))
	defer second.Close()
	if added, err := w.arm(first); !added || err != nil {
		t.Fatal(added, err)
	}
	if added, err := w.arm(second); added || err != nil {
		t.Errorf("a second time: %v, %v", added, err)
	}
	before := openFiles(t)
	checkError(t, w.Add(h.Cgroup("c")), "")
	if got := openFiles(t); got != before || w.Len() != 1 {
		t.Errorf("%d descriptors, before %d, %d cgroups", got, before, w.Len())
	}
}

// TestWatchClose verifies that Close ends the watch of all cgroups, and that it may be called twice. Nothing
// can be added afterwards, because the number of the epoll file may belong to another file.
func TestWatchClose(t *testing.T) {
	h, _ := newHierarchy(t, map[string]string{"c/cgroup.events": "populated 1\n", "c/io.max": ""})
	held, _ := fakeOpenCgroup(t, h.Cgroup("c"))
	w, err := NewEmptyWatch()
	if err != nil {
		t.Fatal(err)
	}
	if added, err := w.arm(held); !added || err != nil {
		t.Fatal(added, err)
	}
	before := openFiles(t)
	checkError(t, w.Close(), "")
	if got := openFiles(t); got != before-2 || w.Len() != 0 { // its own and that of the cgroup
		t.Errorf("%d descriptors, before %d", got, before)
	}
	checkError(t, w.Close(), "")
	checkError(t, w.Add(h.Cgroup("c")), errWatchClosed.Error())
	if got := openFiles(t); got != before-2 {
		t.Errorf("%d descriptors after Add, before %d", got, before-2)
	}
}
