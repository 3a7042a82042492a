package inventory

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/internal/fakenode"
	"github.com/nri-blkio/nri-blkio/policy"
)

// stacked is a Storage with disks on others, swap, and disks that are not there.
type stacked struct {
	fakenode.Resolver
	under map[blkio.Dev][]blkio.Disk
	swap  []blkio.Disk
	fails error // to read swaps
	gone  map[blkio.Dev]bool
	// mounted have a filesystem that the node has mounted.
	mounted map[blkio.Dev]bool
	hangs   blkio.Dev // a read of the devices below it hangs
	asked   int       // calls of Under
	swaps   int       // calls of SwapDisks
}

func (s *stacked) MountedDisks() map[blkio.Dev]bool { return s.mounted }

func (s *stacked) Under(ctx context.Context, dev blkio.Dev) []blkio.Disk {
	s.asked++
	if s.hangs == dev && dev != (blkio.Dev{}) {
		<-ctx.Done()
	}
	if s.gone[dev] {
		return nil
	}
	return s.under[dev]
}

func (s *stacked) SwapDisks(context.Context) ([]blkio.Disk, error) {
	s.swaps++
	return s.swap, s.fails
}

func (s *stacked) Device(dev blkio.Dev) blkio.Backing {
	if s.gone[dev] {
		return blkio.Backing{Reason: "no such disk", Missing: true}
	}
	if dev == (blkio.Dev{Major: 8, Minor: 17}) { // a partition, which the kernel never lists
		return on(plugged)
	}
	return on(blkio.Disk{Dev: dev, Name: "plugged"})
}

var plugged = blkio.Disk{Dev: blkio.Dev{Major: 8, Minor: 16}, Name: "plugged"}

// newStacked returns a node on which the container's data is on a disk made of two others. One of these is a
// loop device.
func newStacked() *stacked {
	return &stacked{
		Resolver: fakenode.NewResolver(twoDisks),
		under: map[blkio.Dev][]blkio.Disk{
			dataDisk.Dev:             {{Dev: blkio.Dev{Major: 8}}, {Dev: blkio.Dev{Major: 8, Minor: 32}}},
			{Major: 253, Minor: 1}:   {plugged},
			{Major: 253, Minor: 100}: {{Dev: blkio.Dev{Major: 8, Minor: 64}}},
		},
		swap:    []blkio.Disk{{Dev: blkio.Dev{Major: 253, Minor: 100}}},
		mounted: map[blkio.Dev]bool{{Major: 8, Minor: 80}: true},
		gone:    map[blkio.Dev]bool{},
	}
}

// moved returns the lines of io.stat of disks, such as "8:16", from which so many bytes were read.
func moved(bytes uint64, devices ...string) string {
	var out strings.Builder
	for _, d := range devices {
		fmt.Fprintf(&out, "%s rbytes=%d wbytes=%d rios=9 wios=9 dbytes=0 dios=0\n", d, bytes/2, bytes-bytes/2)
	}
	return out.String()
}

func TestFindUndeclared(t *testing.T) {
	const much, little = MinUsage, MinUsage - 1
	for _, tt := range []struct {
		name, stat string
		want       []string
	}{
		{"nothing", "", nil},
		{"its own", moved(much, "254:0", "254:16"), nil},
		{"another", moved(much, "254:0", "8:16"), []string{"8:16"}},
		{"others", moved(much, "65:0", "8:16"), []string{"8:16", "65:0"}},
		{"discards", "8:16 rbytes=0 wbytes=0 rios=0 wios=0 dbytes=1048576 dios=1\n", []string{"8:16"}},
		{"a flush", "8:16 rbytes=0 wbytes=0 rios=0 wios=3 dbytes=0 dios=0\n", nil},
		{"no counters", "8:16 \n", nil},
		{"run on", "8:16 8:32 8:64 rbytes=0 wbytes=0 rios=0 wios=0 dbytes=0 dios=0\n", nil},
		{"without a number", "(unknown) rbytes=1 wbytes=1048576 rios=1 wios=1 dbytes=0 dios=0\n", nil},
		{"a little", moved(little, "8:16"), nil},
		{"under its own", moved(much, "254:16", "8:0", "8:32"), nil},
		{"under its own, which is idle", moved(much, "8:0"), nil},
		{"under another", moved(much, "253:1", "8:16"), []string{"253:1"}},
		{"under another that it used a little", moved(little, "253:1") + moved(much, "8:16"), nil},
		{"under another that it only flushed", moved(0, "253:1") + moved(much, "8:16"), []string{"8:16"}},
		{"whose filesystem is the node's", moved(100*much, "8:80"), nil},
		{"swap", moved(much, "253:100"), nil},
		{"under swap", moved(much, "253:100", "8:64"), nil},
		{"that has left", moved(much, "9:9"), nil},
		{"a partition", moved(much, "8:17"), nil},
		{"a device of the host", moved(much, "8:48"), []string{"8:48"}},
	} {
		s := newStacked()
		s.gone[blkio.Dev{Major: 9, Minor: 9}] = true
		facts := policy.Container{
			Rootfs: on(rootDisk),
			Mounts: []policy.Mount{
				{Destination: "/data", Backing: new(on(dataDisk))},
				// A privileged container has these, whether it uses them or not.
				{Destination: "/dev/sdd", Injected: true, Backing: new(on(blkio.Disk{Dev: blkio.Dev{Major: 8, Minor: 48}}))},
			},
		}
		stats, err := blkio.ParseIOStat(tt.stat)
		if err != nil {
			t.Fatal(err)
		}
		found, err := NewStacks(s).FindUndeclared(t.Context(), &facts, &Usage{}, stats, nil)
		if err != nil {
			t.Error(err)
		}
		var got []string
		for _, d := range found.Undeclared {
			got = append(got, d.Dev.String())
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s: -want +got:\n%s", tt.name, diff)
		}
		if tt.name == "its own" && s.asked > 0 {
			t.Errorf("the disks below %d disks were read for a container that uses only its own disks", s.asked)
		}
	}
}

// TestFindUndeclaredAgain verifies that I/O on a disk below a removed one does not count as the container's own, until
// it continues. A disk that the container uses stays until the kernel forgets it.
func TestFindUndeclaredAgain(t *testing.T) {
	s, facts, last := newStacked(), policy.Container{Rootfs: on(rootDisk)}, Usage{}
	compare := func(stat string, want ...blkio.Disk) {
		t.Helper()
		stats, err := blkio.ParseIOStat(stat)
		if err != nil {
			t.Fatal(err)
		}
		found, err := NewStacks(s).FindUndeclared(t.Context(), &facts, &last, stats, nil)
		if err != nil {
			t.Error(err)
		}
		last = found
		if !slices.Equal(last.Undeclared, want) {
			t.Errorf("%q: %v, want %v", stat, last.Undeclared, want)
		}
	}
	above := blkio.Disk{Dev: blkio.Dev{Major: 253, Minor: 1}, Name: "plugged"}
	compare(moved(MinUsage, "253:1", "8:16"), above)
	compare(moved(10*MinUsage, "253:1", "8:16"), above)
	s.gone[above.Dev] = true
	compare(moved(20*MinUsage, "8:16")) // some of it since the last comparison, and by the disk that was removed
	compare(moved(20*MinUsage, "8:16"))
	compare(moved(21*MinUsage-1, "8:16"))
	compare(moved(21*MinUsage, "8:16"), plugged)
	compare(moved(21*MinUsage, "8:16"), plugged)
	compare("")
	compare(moved(MinUsage-1, "8:16")) // another disk with its number
	compare(moved(MinUsage, "8:16"), plugged)
	delete(s.gone, above.Dev) // a disk that was found stays, even if another one is put above it
	compare(moved(MinUsage, "253:1", "8:16"), plugged, above)
	facts.Mounts = []policy.Mount{{Destination: "/data", Backing: new(on(plugged))}}
	compare(moved(MinUsage, "8:16")) // now its parts can be read

	// Its number comes back with less than was explained.
	facts.Mounts = nil
	compare(moved(9*MinUsage, "253:1", "8:16"), above)
	s.gone[above.Dev] = true
	compare(moved(2*MinUsage, "8:16"), plugged)
}

// TestFindUndeclaredStarred verifies that a disk that an earlier process of the plugin found counts from its first byte,
// if the node still has it. Other disks count only with I/O.
func TestFindUndeclaredStarred(t *testing.T) {
	s := newStacked()
	left := blkio.Dev{Major: 9, Minor: 9}
	s.gone[left] = true
	facts := policy.Container{Rootfs: on(rootDisk)}
	starred := map[blkio.Dev]bool{plugged.Dev: true, left: true, {Major: 8, Minor: 48}: true}
	stats, err := blkio.ParseIOStat(moved(2, "8:16", "9:9", "8:64"))
	if err != nil {
		t.Fatal(err)
	}
	got, err := NewStacks(s).FindUndeclared(t.Context(), &facts, &Usage{}, stats, starred)
	if err != nil || !slices.Equal(got.Undeclared, []blkio.Disk{plugged}) {
		t.Errorf("%v, %v", got.Undeclared, err)
	}
	if got.IsZero() || !(&Usage{}).IsZero() || (&Usage{Undeclared: got.Undeclared}).IsZero() || (&Usage{charged: got.charged}).IsZero() {
		t.Errorf("zero: %+v", got)
	}
}

// TestIsDeclared verifies that the disks of the layer, of mounts and of those below them are declared. The
// disks that a privileged container has with all of the host's are not.
func TestIsDeclared(t *testing.T) {
	layer, mount, below, host := blkio.Disk{Dev: blkio.Dev{Major: 1}}, blkio.Disk{Dev: blkio.Dev{Major: 2}}, blkio.Disk{Dev: blkio.Dev{Major: 3}}, blkio.Disk{Dev: blkio.Dev{Major: 4}}
	facts := policy.Container{Rootfs: on(layer), Mounts: []policy.Mount{
		{Injected: true, Backing: new(on(host)), Below: []policy.Below{{Backing: new(on(host))}}},
		{Backing: new(on(mount)), Below: []policy.Below{{Backing: notSelected}, {Backing: new(on(below))}}},
	}}
	for disk, want := range map[blkio.Disk]bool{layer: true, mount: true, below: true, host: false} {
		if got := isDeclared(&facts, disk.Dev); got != want {
			t.Errorf("%s: %t", disk.Dev, got)
		}
	}
	want := map[blkio.Dev]bool{layer.Dev: true, mount.Dev: true, below.Dev: true}
	if d := cmp.Diff(want, declaredDisks(&facts)); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

// TestStacksOnce verifies that a pass over many containers finds the disks below each disk once, and reads the
// swaps once.
func TestStacksOnce(t *testing.T) {
	s := newStacked()
	stacks, facts := NewStacks(s), policy.Container{Rootfs: on(rootDisk), Mounts: []policy.Mount{{Backing: new(on(dataDisk))}}}
	stats, err := blkio.ParseIOStat(moved(MinUsage, "8:16"))
	if err != nil {
		t.Fatal(err)
	}
	var asked []int
	for range 3 {
		if _, err := stacks.FindUndeclared(t.Context(), &facts, &Usage{}, stats, nil); err != nil {
			t.Fatal(err)
		}
		asked = append(asked, s.asked, s.swaps)
	}
	// Of the swap's disk, the layer's, the volume's and the other one.
	if want := []int{4, 1, 4, 1, 4, 1}; !slices.Equal(asked, want) {
		t.Errorf("calls of Under and SwapDisks are %v, want %v", asked, want)
	}
}

// TestFindUndeclaredFails verifies that as long as the disks below a disk, or those that the kernel swaps to, are
// unknown, no disk counts as an undeclared one. The next pass asks again, and this one no more.
func TestFindUndeclaredFails(t *testing.T) {
	for _, tt := range []struct {
		name  string
		fails error
		hangs blkio.Dev
		want  string
	}{
		{name: "the swaps", fails: errAnswer, want: errAnswer.Error()},
		{name: "below its own disk", hangs: dataDisk.Dev, want: "find the disks below 254:16: no answer"},
		{name: "below the swap's", hangs: blkio.Dev{Major: 253, Minor: 100}, want: "find the disks below 253:100: no answer"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStacked()
				s.fails, s.hangs = tt.fails, tt.hangs
				facts := policy.Container{Rootfs: on(rootDisk), Mounts: []policy.Mount{{Backing: new(on(dataDisk))}}}
				stats, err := blkio.ParseIOStat(moved(MinUsage, "8:16"))
				if err != nil {
					t.Fatal(err)
				}
				stacks, began := NewStacks(s), time.Now()
				for range 2 {
					got, err := stacks.FindUndeclared(t.Context(), &facts, &Usage{}, stats, nil)
					if err == nil || err.Error() != tt.want || !got.IsZero() {
						t.Errorf("%v, %+v", err, got)
					}
				}
				if waited := time.Since(began); tt.fails == nil && waited != underDeadline {
					t.Errorf("waited %v", waited)
				}
			})
		})
	}
}

// TestCounters verifies that each cgroup is read once, from the top as far as needed, and decides only if it can be read.
func TestCounters(t *testing.T) {
	own, other := blkio.DevBytes{Dev: dataDisk.Dev, Bytes: 1}, blkio.DevBytes{Dev: plugged.Dev, Bytes: 1}
	of := map[string][]blkio.DevBytes{
		"pods":     {own, other},
		"pods/a":   {own},
		"pods/c":   {other, own},
		"pods/c/a": {own},
		"pods/c/b": {other},
	}
	reads := map[string]int{}
	x := NewCounters(func(cgroup string) ([]blkio.DevBytes, error) {
		reads[cgroup]++
		if of[cgroup] == nil {
			return nil, errAnswer
		}
		return of[cgroup], nil
	})
	facts := &policy.Container{Rootfs: on(dataDisk)}
	for cgroup, want := range map[string]bool{"pods/a/c": false, "pods/a/d": false, "pods/b/c": true, "pods/c/a": false, "pods/c/b": true} {
		got, unread := x.MayDiffer(cgroup, facts, &Usage{})
		for ; unread != ""; got, unread = x.MayDiffer(cgroup, facts, &Usage{}) {
			x.Read(unread)
		}
		if got != want {
			t.Errorf("%s: %t", cgroup, got)
		}
	}
	if diff := cmp.Diff(map[string]int{"pods": 1, "pods/a": 1, "pods/b": 1, "pods/b/c": 1, "pods/c": 1, "pods/c/a": 1, "pods/c/b": 1}, reads); diff != "" {
		t.Error(diff)
	}
}

// TestMayDiffer verifies, with random I/O, that a comparison which MayDiffer says is not needed would find the same disks, and that
// most comparisons of a container without I/O are not needed.
func TestMayDiffer(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	devs := []string{"254:0", "254:16", "8:0", "8:16", "65:0", "253:1", "253:100", "8:64", "8:80"}
	facts := &policy.Container{Rootfs: on(rootDisk), Mounts: []policy.Mount{{Destination: "/data", Backing: new(on(dataDisk))}}}
	saved, idle := 0, 0
	for range 2000 {
		stacks, last, used := NewStacks(newStacked()), Usage{}, map[string]uint64{}
		for range 6 {
			isIdle := random.IntN(3) == 0
			if dev := devs[random.IntN(len(devs))]; !isIdle {
				used[dev] += random.Uint64N(MinUsage)
			}
			if random.IntN(20) == 0 {
				delete(used, devs[random.IntN(len(devs))])
			}
			text := ""
			for dev, bytes := range used {
				text += moved(bytes, dev)
			}
			stats, err := blkio.ParseIOStat(text)
			if err != nil {
				t.Fatal(err)
			}
			x := NewCounters(func(string) ([]blkio.DevBytes, error) { return blkio.ParseIOBytes(text) })
			x.Read("c")
			may, _ := x.MayDiffer("c", facts, &last)
			now, err := stacks.FindUndeclared(t.Context(), facts, &last, stats, nil)
			if err != nil {
				t.Fatal(err)
			}
			if !may && !slices.Equal(now.Undeclared, last.Undeclared) {
				t.Fatalf("%v is unchanged by\n%s, but would be %v", last, text, now)
			}
			if isIdle {
				idle++
			}
			if isIdle && !may {
				saved++
			}
			last = now
		}
	}
	if saved < idle*8/10 {
		t.Errorf("%d of %d comparisons of an idle container were not needed", saved, idle)
	}
}
