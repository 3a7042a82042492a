package node

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/storage"
	"github.com/nri-blkio/nri-blkio/internal/fakenode"
	"github.com/nri-blkio/nri-blkio/plugin/inventory"
	"github.com/nri-blkio/nri-blkio/plugin/node/layers"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// sameMounts returns n mounts of one emptyDir at "/a", written in as many ways.
func sameMounts(n int, options ...string) []inventory.Mount {
	var out []inventory.Mount
	for i := range n {
		at := "/a"
		for bit := range 12 {
			at += []string{"/", "/."}[i>>bit&1]
		}
		out = append(out, bind(podVolumes+"empty-dir/v", at, append([]string{"rbind", "rw"}, options...)...))
	}
	return out
}

// manyPaths returns annotations with as many paths below "/a" as one pod may have. With star, the last one is
// replaced by "*" for the pod.
func manyPaths(star bool) map[string]string {
	out := map[string]string{}
	for i, scope := range []string{"container.db", "containers", "container.db2", "pod-total"} {
		var b strings.Builder
		for k := range 256 {
			if star && i == 3 && k == 255 {
				b.WriteString("* wbps=1Mi")
				break
			}
			fmt.Fprintf(&b, "/a/%d%d%s wbps=1Mi;", i, k, strings.Repeat("x", 200))
		}
		out[limitsKey+scope] = b.String()
	}
	return out
}

// countedStorage counts the questions, and calls each before it answers one.
type countedStorage struct {
	fakenode.Resolver
	resolves, belows, submounts int
	each                        func()
}

func (s *countedStorage) Resolve(ctx context.Context, path string) *blkio.Backing {
	s.resolves++
	if s.each != nil {
		s.each()
	}
	return s.Resolver.Resolve(ctx, path)
}

func (s *countedStorage) Below(_ context.Context, _, rel string) (string, *blkio.Backing, bool) {
	s.belows++
	return "sub", new(fakenode.On(dataDisk)), strings.HasPrefix(rel, "0")
}

func (s *countedStorage) Submounts(context.Context, string) iter.Seq2[string, *blkio.Backing] {
	s.submounts++
	return func(yield func(string, *blkio.Backing) bool) { yield("sub", new(fakenode.On(dataDisk))) }
}

// TestManyPathsAndMounts verifies that the number of lookups for a container grows with its mounts plus its
// paths, and not with their product.
func TestManyPathsAndMounts(t *testing.T) {
	const mounts = 500
	for _, star := range []bool{false, true} {
		h, _ := tree(t)
		n := newNode(t, h)
		s := &countedStorage{Resolver: fakenode.NewResolver(func(string) blkio.Backing { return fakenode.On(dataDisk) })}
		n.storage = s
		pod := &inventory.Pod{UID: "u1", Sandbox: "sb1", Targets: annotation.Parse(manyPaths(star)).Targets()}
		c := inventory.NewContainer(specOf("db", sameMounts(mounts, "rslave")...)())
		if err := n.finder().inventory().Find(t.Context(), pod, inventory.Layer{Dir: "/"}, &c); err != nil {
			t.Fatal(err)
		}
		paths := len(pod.Targets.Paths)
		if paths < 1023 || s.resolves > 2 || s.belows > paths || s.submounts > 1 {
			t.Errorf("star %t: %d paths, %d mounts: resolved %d, below %d, submounts %d", star, paths, mounts, s.resolves, s.belows, s.submounts)
		}
		// The last one of the mounts at one place has the disks that were found for the paths, once.
		last := &c.Facts.Mounts[mounts-1]
		if len(last.Below) != 1 || last.Below[0].Path != "/a/sub" || len(last.Backing.Disks) != 1 {
			t.Errorf("star %t: got %+v", star, last)
		}
	}
}

// TestFactsDeadline verifies that the search for disks ends with its context. A disk that was not found by then
// is an error, not a container without limits.
func TestFactsDeadline(t *testing.T) {
	h, _ := tree(t)
	n := newNode(t, h)
	ctx, cancel := context.WithCancel(t.Context())
	s := &countedStorage{Resolver: fakenode.NewResolver(func(string) blkio.Backing { return fakenode.On(dataDisk) }), each: cancel}
	n.storage = s
	var mounts []inventory.Mount
	for i := range 100 {
		mounts = append(mounts, bind(fmt.Sprint("/mnt/data/", i), fmt.Sprint("/", i), "rbind"))
	}
	adjust, err := n.create(ctx, sandbox(map[string]string{limitsKey + "containers": "* wbps=1Mi"}), ctr("db", mounts...), false)
	if !errors.Is(err, context.Canceled) || adjust != nil {
		t.Errorf("got %v, %v", adjust, err)
	}
	if s.resolves > 1 { // the root filesystem
		t.Errorf("%d lookups after the end", s.resolves)
	}
}

// BenchmarkHostileCreate is the handler, and the decision of the reconciler after the
// mount table has changed, for a pod with 1,024 paths and 4,000 mounts.
func BenchmarkHostileCreate(b *testing.B) {
	for _, star := range []bool{false, true} {
		for _, mounts := range []int{1000, 4000} {
			b.Run(fmt.Sprintf("mounts=%d/star=%t", mounts, star), func(b *testing.B) {
				h, _ := tree(b, podCgroup, cgroupOf("db"))
				n := newNode(b, h)
				storage, err := storage.Open(storage.Config{Sys: os.DirFS("/sys"), Mountinfo: "/proc/self/mountinfo", HostRoot: "/"})
				if err != nil {
					b.Fatal(err)
				}
				defer storage.Close()
				n.storage = storage
				n.layers = layers.New(inventory.Layers{Default: inventory.Layer{Dir: "/"}})
				s := &session{n, time.Minute}
				sb, c := sandbox(manyPaths(star)), ctr("db", sameMounts(mounts, "rslave")...)
				before, creates := processorTime(b), 0
				for b.Loop() {
					creates++
					n.RemovedPod(sb.ID)
					if _, err := s.CreateContainer(b.Context(), sb, c); err != nil && !strings.Contains(err.Error(), "cannot be limited") {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64((processorTime(b)-before).Microseconds())/1e3/float64(creates), "cpu-ms/create")
				if err := s.StartContainer(b.Context(), sb, c); err != nil {
					b.Log(err)
				}
				before = processorTime(b)
				const passes = 10
				for range passes {
					n.MountsChanged()
					n.settle(b.Context())
				}
				b.ReportMetric(float64((processorTime(b)-before).Microseconds())/1e3/passes, "cpu-ms/reconcile")
			})
		}
	}
}

// BenchmarkBesideHostileCreate is the handler for ordinary pods, with 15 mounts each: alone, and while the pod of
// BenchmarkHostileCreate is created again and again. Both are measured in turns, so that what else the machine
// does concerns both. The runtime itself sends one event after another, so there a create waits at most for one
// of the hostile pod, which takes what BenchmarkHostileCreate reports.
func BenchmarkBesideHostileCreate(b *testing.B) {
	h, _ := tree(b)
	n := newNode(b, h)
	n.storage = benchStorage(b, "/proc/self/mountinfo")
	n.layers = layers.New(inventory.Layers{Default: inventory.Layer{Dir: "/"}})
	s := &session{n, time.Minute}
	sb, hostile := sandbox(manyPaths(true)), ctr("db", sameMounts(4000, "rslave")...)
	create := func() {
		n.RemovedPod(sb.ID)
		if _, err := s.CreateContainer(b.Context(), sb, hostile); err != nil && !strings.Contains(err.Error(), "cannot be limited") {
			b.Error(err)
		}
	}
	n.benchBeside(b, s, create)
}

// benchBeside measures the handler for ordinary pods alone, and while something else is done again and again, in turns.
func (n *Node) benchBeside(b *testing.B, s *session, other func()) {
	b.Helper()
	const creates = 200
	var alone, beside []time.Duration
	for b.Loop() {
		alone = append(alone, n.ordinaryCreates(b, s, creates)...)
		var end atomic.Bool
		var others sync.WaitGroup
		began := make(chan struct{})
		others.Go(func() {
			close(began)
			for !end.Load() {
				other()
			}
		})
		<-began
		beside = append(beside, n.ordinaryCreates(b, s, creates)...)
		end.Store(true)
		others.Wait()
	}
	report(b, "alone", alone)
	report(b, "beside", beside)
	b.ReportMetric(float64(beside[len(beside)/2])/float64(alone[len(alone)/2]), "p50-ratio")
}

// ordinaryCreates creates pods one after another, and returns the time of each handler.
func (n *Node) ordinaryCreates(b *testing.B, s *session, count int) (took []time.Duration) {
	b.Helper()
	var mounts []inventory.Mount
	for i := range 15 {
		mounts = append(mounts, bind(fmt.Sprint("/tmp/", i), fmt.Sprint("/data", i), "rbind", "rw"))
	}
	for i := range count {
		sb := sandbox(map[string]string{limitsKey + "container.db": "* wbps=1Mi"})
		sb.ID, sb.UID = fmt.Sprint("ordinary", i), fmt.Sprint("ordinary", i)
		sb.Cgroup = fmt.Sprintf("/kubepods.slice/kubepods-ordinary%d.slice", i)
		n.RemovedPod(sb.ID)
		took = append(took, timed(func() {
			if adjust, err := s.CreateContainer(b.Context(), sb, ctr("db", mounts...)); err != nil || adjust == nil {
				b.Errorf("%v, %v: is /tmp on a disk?", adjust, err)
			}
		}))
	}
	return took
}

func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
