package shares

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
)

var (
	vda = blkio.Dev{Major: 254}
	vdb = blkio.Dev{Major: 254, Minor: 16}
)

// kernel is a tree of cgroups in plain files, in which a write to io.weight changes the weight
// of one disk, as the kernel does.
type kernel struct {
	t      *testing.T
	dir    string
	keeper *Keeper
	now    time.Time
	given  map[string]blkio.Weights
	rios   map[string]int
	// reserve is the share for everything outside pods.
	reserve blkio.Percent
	budgets map[string]Budget
	// without are the disks whose weights the kernel refuses, as without io.cost.
	without map[blkio.Dev]bool
	writes  []string
	file    string // that the Keeper writes
}

func newKernel(t *testing.T, containers map[string]string) *kernel {
	k := &kernel{
		t: t, dir: t.TempDir(), now: time.Unix(1000, 0), given: map[string]blkio.Weights{}, file: "io.weight",
		rios: map[string]int{}, without: map[blkio.Dev]bool{},
	}
	k.put("cgroup.controllers", "io\n")
	k.make("system.slice/kubelet.service", "default 100\n")
	for p, weight := range containers {
		k.make(p, weight)
	}
	tree, err := cgroupfs.OpenFake(k.dir, cgroupfs.Fake{Write: k.write})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tree.Close() })
	k.keeper = NewKeeper(tree, cgroupfs.Cgroup.Write)
	return k
}

func (k *kernel) put(name, text string) {
	k.t.Helper()
	if err := os.WriteFile(filepath.Join(k.dir, name), []byte(text), 0o644); err != nil {
		k.t.Fatal(err)
	}
}

func (k *kernel) read(name string) string {
	k.t.Helper()
	data, err := os.ReadFile(filepath.Join(k.dir, name))
	if err != nil {
		k.t.Fatal(err)
	}
	return string(data)
}

// make makes a container's cgroup, and those above it.
func (k *kernel) make(p, weight string) {
	k.t.Helper()
	if err := os.MkdirAll(filepath.Join(k.dir, p), 0o755); err != nil {
		k.t.Fatal(err)
	}
	k.put(p+"/io.weight", weight)
	k.put(p+"/io.stat", "")
	for dir := path.Dir(p); dir != "."; dir = path.Dir(dir) {
		if _, err := os.Stat(filepath.Join(k.dir, dir, "io.weight")); err != nil {
			k.put(dir+"/io.weight", "default 100\n")
			k.put(dir+"/io.stat", "")
		}
	}
}

// use is an operation of each container, which counts in all cgroups above it.
func (k *kernel) use(dev blkio.Dev, containers ...string) {
	for _, p := range containers {
		k.useTimes(dev, p, 1)
	}
}

// useTimes adds operations of a container that take a millisecond of the disk each.
func (k *kernel) useTimes(dev blkio.Dev, p string, times int) {
	for ; p != "."; p = path.Dir(p) {
		k.rios[p] += times
		k.put(p+"/io.stat", fmt.Sprintf("%s rbytes=0 wbytes=0 rios=%d wios=0 dbytes=0 dios=0 cost.usage=%d\n", dev, k.rios[p], 1000*k.rios[p]))
	}
}

func (k *kernel) write(name, data string) error {
	k.writes = append(k.writes, name+": "+data)
	word, value, _ := strings.Cut(data, " ")
	dev, err := blkio.ParseDev(word)
	if err != nil || path.Base(name) != k.file {
		return unix.EINVAL
	}
	if k.without[dev] {
		return unix.EOPNOTSUPP
	}
	weights, err := blkio.ParseIOWeight(k.read(name))
	if err != nil {
		return err
	}
	weight := uint32(0)
	if value != "default" {
		if _, err := fmt.Sscan(value, &weight); err != nil || weight < 1 || weight > 10000 {
			return unix.ERANGE
		}
	}
	k.put(name, weights.With(dev, weight).String())
	return nil
}

// pass is one pass of the Keeper, two seconds after the last one.
func (k *kernel) pass(disks ...blkio.Dev) map[blkio.Dev][]Share {
	k.t.Helper()
	r, err := k.tryPass(disks...)
	if err != nil {
		k.t.Fatal(err)
	}
	return r.Shares
}

func (k *kernel) tryPass(disks ...blkio.Dev) (Result, error) {
	k.now = k.now.Add(2 * time.Second)
	return k.keeper.Pass(k.now, Demand{Disks: disks, Given: k.given, Budgets: k.budgets, Reserve: k.reserve})
}

// want compares the weights of cgroups. One that is not named has the default.
func (k *kernel) want(want map[string]string) {
	k.t.Helper()
	got := map[string]string{}
	err := filepath.WalkDir(k.dir, func(file string, _ os.DirEntry, err error) error {
		if err == nil && filepath.Base(file) == "io.weight" {
			dir, _ := filepath.Rel(k.dir, filepath.Dir(file))
			text := strings.Join(strings.Split(strings.TrimSpace(k.read(dir+"/io.weight")), "\n"), ", ")
			if text != "default 100" {
				got[dir] = text
			}
		}
		return err
	})
	if err != nil {
		k.t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		k.t.Errorf("weights: -want +got:\n%s", diff)
	}
}

const (
	burstable = "kubepods.slice/kubepods-burstable.slice"
	podA      = burstable + "/kubepods-burstable-poda.slice"
	podB      = burstable + "/kubepods-burstable-podb.slice"
	podC      = "kubepods.slice/kubepods-podc.slice"
	a, b, c   = podA + "/cri-a.scope", podB + "/cri-b.scope", podC + "/cri-c.scope"
)

func threePods(t *testing.T) *kernel {
	return newKernel(t, map[string]string{a: "default 200\n", b: "default 900\n", c: "default 300\n"})
}

func leaves(more map[string]string) map[string]string {
	out := map[string]string{a: "default 200", b: "default 900", c: "default 300"}
	maps.Copy(out, more)
	return out
}

func TestPass(t *testing.T) {
	k := threePods(t)
	k.pass(vda)
	k.use(vda, a, c)
	shares := k.pass(vda)
	k.want(leaves(map[string]string{
		burstable: "default 100, 254:0 200", podA: "default 100, 254:0 200", podB: "default 100, 254:0 900", podC: "default 100, 254:0 300",
	}))
	for _, s := range shares[vda] {
		if s.Path == a && s.Fraction != 0.4 {
			t.Errorf("a has %+v", s)
		}
	}
	// A write for no change is no write.
	n := len(k.writes)
	k.use(vda, a, c)
	k.pass(vda)
	if len(k.writes) != n {
		t.Errorf("written again: %q", k.writes[n:])
	}
	// A neighbour that begins adds its weight, and takes it away some seconds after its end.
	k.use(vda, a, b, c)
	k.pass(vda)
	want := leaves(map[string]string{
		burstable: "default 100, 254:0 1100", podA: "default 100, 254:0 200", podB: "default 100, 254:0 900", podC: "default 100, 254:0 300",
	})
	k.want(want)
	for range 3 {
		k.want(want)
		k.use(vda, a, c)
		k.pass(vda)
	}
	want[burstable] = "default 100, 254:0 200"
	k.want(want)
}

// TestDisks verifies that use of one disk does not count on another one.
func TestDisks(t *testing.T) {
	k := threePods(t)
	k.put(b+"/io.weight", "default 900\n254:16 50\n")
	k.pass(vda, vdb)
	k.use(vda, a, c)
	k.use(vdb, b)
	k.pass(vda, vdb)
	want := map[string]string{a: "default 200", b: "default 900, 254:16 50", c: "default 300"}
	want[burstable] = "default 100, 254:0 200, 254:16 50"
	want[podA] = "default 100, 254:0 200, 254:16 200"
	want[podB] = "default 100, 254:0 900, 254:16 50"
	want[podC] = "default 100, 254:0 300, 254:16 300"
	k.want(want)
	if got, err := unixAttribute(k.dir + "/" + podB); err != nil || got != "254:0 254:16" && got != "254:16 254:0" {
		t.Errorf("the attribute is %q, %v", got, err)
	}
	// A disk that has io.cost no more.
	k.pass(vda)
	want[burstable], want[podB] = "default 100, 254:0 200", "default 100, 254:0 900"
	want[podA], want[podC] = "default 100, 254:0 200", "default 100, 254:0 300"
	k.want(want)
	k.pass()
	k.want(map[string]string{a: "default 200", b: "default 900, 254:16 50", c: "default 300"})
	for _, p := range []string{burstable, podA, podB, podC} {
		if got, err := unixAttribute(k.dir + "/" + p); !errors.Is(err, unix.ENODATA) {
			t.Errorf("%s: the attribute is %q, %v", p, got, err)
		}
	}
}

func unixAttribute(file string) (string, error) {
	buf := make([]byte, 256)
	n, err := unix.Getxattr(file, Attribute, buf)
	if err != nil {
		return "", err
	}
	return string(buf[:n]), nil
}

// TestForeign verifies that the weight of a disk that this program did not set stays where it does not control
// io.cost. A weight that changes below it is restored.
func TestForeign(t *testing.T) {
	k := threePods(t)
	k.put(podC+"/io.weight", "default 100\n254:16 77\n")
	k.pass(vda)
	k.use(vda, a)
	k.pass(vda)
	k.put(burstable+"/io.weight", "default 100\n") // as daemon-reload of systemd does
	k.put(podC+"/io.weight", "default 50\n254:16 77\n")
	k.use(vda, a)
	k.pass(vda)
	if got := k.read(burstable + "/io.weight"); got != "default 100\n254:0 200\n" {
		t.Errorf("of an active cgroup: %q", got)
	}
	k.now = k.now.Add(allEvery)
	k.pass(vda)
	if got := k.read(podC + "/io.weight"); got != "default 50\n254:0 300\n254:16 77\n" {
		t.Errorf("of an idle cgroup: %q", got)
	}
	k.pass()
	if got := k.read(podC + "/io.weight"); got != "default 50\n254:16 77\n" {
		t.Errorf("without io.cost: %q", got)
	}
}

func TestGiven(t *testing.T) {
	k := threePods(t)
	k.given[podA] = blkio.Weights{Default: 50}
	k.pass(vda)
	k.use(vda, a, c)
	k.pass(vda)
	k.want(leaves(map[string]string{
		burstable: "default 100, 254:0 50", podA: "default 100, 254:0 50", podB: "default 100, 254:0 900", podC: "default 100, 254:0 300",
	}))
}

// TestRefused verifies that a disk whose weights the kernel refuses is an error, and the other one is right.
func TestRefused(t *testing.T) {
	k := threePods(t)
	k.without[vda] = true
	if _, err := k.keeper.Pass(k.now, Demand{Disks: []blkio.Dev{vda, vdb}}); err == nil || !strings.Contains(err.Error(), "254:0") {
		t.Errorf("got %v", err)
	}
	if got := k.read(podB + "/io.weight"); got != "default 100\n254:16 900\n" {
		t.Errorf("on the other disk: %q", got)
	}
	k.without[vda] = false
	k.pass(vda, vdb)
	if got := k.read(podB + "/io.weight"); got != "default 100\n254:0 900\n254:16 900\n" {
		t.Errorf("later: %q", got)
	}
}

// TestSwapped verifies that on a disk that came under the number of another one, and never had io.cost, there
// is no weight to remove.
func TestSwapped(t *testing.T) {
	k := threePods(t)
	k.pass(vda)
	k.without[vda] = true
	k.pass()
	for _, p := range []string{burstable, podA, podB, podC} {
		if got, err := unixAttribute(k.dir + "/" + p); !errors.Is(err, unix.ENODATA) {
			t.Errorf("%s: the attribute is %q, %v", p, got, err)
		}
	}
}

// TestGivenContainer verifies that the weight that a container asks for counts before it is read.
func TestGivenContainer(t *testing.T) {
	k := threePods(t)
	k.pass(vda)
	k.given[a] = blkio.Weights{Default: 200, Devices: map[blkio.Dev]uint32{vda: 700}}
	k.pass(vda)
	if got, want := k.read(podA+"/io.weight"), "default 100\n254:0 700\n"; got != want {
		t.Errorf("the pod has %q, want %q", got, want)
	}
}

func TestClear(t *testing.T) {
	k := threePods(t)
	k.pass(vda, vdb)
	before := len(k.writes)
	planned, err := Clear(k.keeper.cgroups, true)
	if err != nil || len(planned) != 8 || len(k.writes) != before || planned[0] != `kubepods.slice/kubepods-burstable.slice: write io.weight "254:0 default"` {
		t.Errorf("planned %q, %v", planned, err)
	}
	cleared, err := Clear(k.keeper.cgroups, false)
	if diff := cmp.Diff(planned, cleared); err != nil || diff != "" {
		t.Errorf("%v, -planned +cleared:\n%s", err, diff)
	}
	if again, err := Clear(k.keeper.cgroups, false); err != nil || again != nil {
		t.Errorf("again: %q, %v", again, err)
	}
	k.want(leaves(nil))
}

// TestClearedMeanwhile verifies that weights that are set after another process has cleared are recorded again,
// so that they can be removed.
func TestClearedMeanwhile(t *testing.T) {
	k := threePods(t)
	k.pass(vda)
	if _, err := Clear(k.keeper.cgroups, false); err != nil {
		t.Fatal(err)
	}
	k.now = k.now.Add(allEvery)
	k.pass(vda)
	if got := k.read(podB + "/io.weight"); got != "default 100\n254:0 900\n" {
		t.Errorf("the pod has %q", got)
	}
	if cleared, err := Clear(k.keeper.cgroups, false); err != nil || len(cleared) != 4 {
		t.Errorf("cleared %q, %v", cleared, err)
	}
	k.want(leaves(nil))
}
