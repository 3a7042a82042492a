package node

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	logtest "github.com/sirupsen/logrus/hooks/test"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/storage"
	"github.com/nri-blkio/nri-blkio/plugin/inventory"
)

var strayDisk = blkio.Disk{Dev: blkio.Dev{Major: 254, Minor: 32}, Name: "vdc"}

// at is a mount of a container's first process.
func at(mountpoint string, disk blkio.Disk, options ...string) blkio.ProcessMount {
	b := on(disk)
	return blkio.ProcessMount{
		Mountpoint: mountpoint, Backing: &b,
		IsRoot: mountpoint == "/", ReadOnly: len(options) > 0,
	}
}

type processMounts = func() ([]blkio.ProcessMount, error)

// comparing returns a plugin that gets these mounts for the process of the container db.
func comparing(t *testing.T, mounts processMounts) (*Node, string) {
	t.Helper()
	h, dir := tree(t, podCgroup, cgroupOf("db"))
	write(t, filepath.Join(dir, cgroupOf("db"), "cgroup.events"), "populated 1\n")
	n := newNode(t, h)
	n.storage = disks{strayPaths}
	n.processMounts = func(_ context.Context, pid int, cgroup string) ([]blkio.ProcessMount, error) {
		if pid != 123 || cgroup != cgroupOf("db") {
			t.Errorf("mounts of process %d in cgroup %s were read", pid, cgroup)
		}
		return mounts()
	}
	return n, dir
}

func strayPaths(path string) blkio.Backing {
	if strings.HasPrefix(path, "/mnt/stray") {
		return on(strayDisk)
	}
	return twoDisks(path)
}

// run creates the container db and starts it with a process.
func run(t *testing.T, n *Node, sb *Sandbox, pid uint32, spec ...inventory.Mount) error {
	t.Helper()
	c := ctr("db", spec...)
	if _, err := n.create(t.Context(), sb, c, false); err != nil {
		t.Fatal(err)
	}
	c.PID = int(pid)
	return n.start(t.Context(), sb, c, true)
}

func limited(value string) *Sandbox {
	return sandbox(map[string]string{limitsKey + "container.db": value})
}

// wants is the plan for the container db.
func wants(t *testing.T, n *Node) map[string]string {
	t.Helper()
	out := map[string]string{}
	c := n.snapshot(n.peek().pods["sb1"].containers["id-db"].ref)
	for _, l := range c.decision.desired.Settings.Lines() {
		out[c.decision.desired.Disks[l.Dev]] = l.Text
	}
	return out
}

// redirectTest is a container with a volume whose path may lead to another disk: the mounts of its process, and
// the wanted lines by disk.
type redirectTest struct {
	name, value string
	spec        []inventory.Mount
	mounts      []blkio.ProcessMount
	want        map[string]string
}

// tenantVolume is a hostPath volume below a directory of the tenant.
func tenantVolume() inventory.Mount { return bind("/mnt/data/tenant/v", "/data", "rbind", "rw") }

func (tt *redirectTest) run(t *testing.T) {
	if tt.spec == nil {
		tt.spec = []inventory.Mount{tenantVolume()}
	}
	mounts := func() ([]blkio.ProcessMount, error) {
		if tt.mounts == nil {
			t.Error("its mounts are read")
		}
		return tt.mounts, nil
	}
	n, dir := comparing(t, mounts)
	if err := run(t, n, limited(tt.value), 123, tt.spec...); err != nil {
		t.Error(err)
	}
	if d := cmp.Diff(tt.want, wants(t, n)); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	if _, isStray := tt.want["vdc"]; isStray != strings.Contains(read(t, filepath.Join(dir, cgroupOf("db"), "io.max")), "254:32") {
		t.Error("io.max is not that before the first instruction")
	}
	// The disk that was found stays, although the path leads back.
	n.DisksChanged()
	n.pass(t.Context())
	if d := cmp.Diff(tt.want, wants(t, n)); d != "" {
		t.Errorf("later: -want +got:\n%s", d)
	}
}

// TestRedirectedMount verifies that limits apply to the disks under the mounts that a container has, wherever a
// tenant has redirected the paths of its volumes between create and mount.
func TestRedirectedMount(t *testing.T) {
	const star, data = "* wbps=1Mi", "/data wbps=1Mi"
	const vda, vdb, vdc = "254:0 wbps=1048576", "254:16 wbps=1048576", "254:32 wbps=1048576"
	for _, tt := range []redirectTest{
		{name: "where the path led", value: star, mounts: []blkio.ProcessMount{at("/data", dataDisk)}, want: map[string]string{"vda": vda, "vdb": vdb}},
		{name: "elsewhere, star", value: star, mounts: []blkio.ProcessMount{at("/data", strayDisk)}, want: map[string]string{"vda": vda, "vdb": vdb, "vdc": vdc}},
		{name: "elsewhere, path", value: data, mounts: []blkio.ProcessMount{at("/data", strayDisk)}, want: map[string]string{"vdb": vdb, "vdc": vdc}},
		{name: "below what it leads to", value: data, mounts: []blkio.ProcessMount{at("/data", dataDisk), at("/data/sub", strayDisk)}, want: map[string]string{"vdb": vdb, "vdc": vdc}},
		{
			name: "hidden by a later mount", value: star,
			mounts: []blkio.ProcessMount{at("/data", strayDisk), at("/data", dataDisk)},
			want:   map[string]string{"vda": vda, "vdb": vdb, "vdc": vdc},
		},
		{
			name: "at the end of an image's symbolic link", value: data,
			mounts: []blkio.ProcessMount{at("/elsewhere", strayDisk)},
			want:   map[string]string{"vdb": vdb, "vdc": vdc},
		},
		{
			name: "at the end of a symbolic link to a mount without a limit", value: data,
			spec:   []inventory.Mount{tenantVolume(), bind("/var/log", "/log", "rbind", "rw")},
			mounts: []blkio.ProcessMount{at("/log", strayDisk), at("/log", rootDisk)},
			want:   map[string]string{"vdb": vdb, "vdc": vdc},
		},
	} {
		t.Run(tt.name, tt.run)
	}
}

// TestMountOfKnownDisk verifies that a mount of a disk that the container may have anyway adds no limits.
func TestMountOfKnownDisk(t *testing.T) {
	const star, data = "* wbps=1Mi", "/data wbps=1Mi"
	const vda, vdb, vdc = "254:0 wbps=1048576", "254:16 wbps=1048576", "254:32 wbps=1048576"
	for _, tt := range []redirectTest{
		{
			name: "to the disk of a mount without a limit", value: data,
			spec:   []inventory.Mount{tenantVolume(), bind("/mnt/stray", "/log", "rbind", "rw")},
			mounts: []blkio.ProcessMount{at("/data", dataDisk), at("/log", strayDisk)},
			want:   map[string]string{"vdb": vdb},
		},
		{
			name: "writable to a disk that is read-only elsewhere", value: star,
			spec:   []inventory.Mount{tenantVolume(), bind("/mnt/stray", "/ro", "rbind", "ro")},
			mounts: []blkio.ProcessMount{at("/data", strayDisk), at("/ro", strayDisk, "ro")},
			want:   map[string]string{"vda": vda, "vdb": vdb, "vdc": vdc},
		},
		{
			name: "read-only as it was asked for", value: star,
			spec:   []inventory.Mount{tenantVolume(), bind("/mnt/stray", "/ro", "rbind", "ro")},
			mounts: []blkio.ProcessMount{at("/data", dataDisk), at("/ro", strayDisk, "ro")},
			want:   map[string]string{"vda": vda, "vdb": vdb},
		},
		{
			name: "to the disk of a writable layer", value: data,
			mounts: []blkio.ProcessMount{at("/", rootDisk), at("/data", rootDisk)},
			want:   map[string]string{"vdb": vdb},
		},
		{
			name: "to the disk of a read-only layer", value: data,
			mounts: []blkio.ProcessMount{at("/", rootDisk, "ro"), at("/data", rootDisk)},
			want:   map[string]string{"vda": vda, "vdb": vdb},
		},
		{
			name: "the kubelet's volumes are not asked about", value: data,
			spec: []inventory.Mount{bind(podVolumes+"csi/data/mount", "/data", "rbind", "rw")},
			want: map[string]string{"vda": vda}, // nil mounts fail
		},
		{
			name: "another pod's volume", value: data,
			spec:   []inventory.Mount{bind("/var/lib/kubelet/pods/u2/volumes/kubernetes.io~empty-dir/v/x", "/data", "rbind", "rw")},
			mounts: []blkio.ProcessMount{at("/data", strayDisk)},
			want:   map[string]string{"vda": vda, "vdc": vdc},
		},
	} {
		t.Run(tt.name, tt.run)
	}
}

// TestNotCompared verifies that a container whose mounts cannot be compared has the limits of its creation. Its
// start reports the failure, and the reconciler retries.
func TestNotCompared(t *testing.T) {
	volume := bind("/mnt/data/tenant/v", "/data", "rbind", "rw")
	broken := errors.New("input/output error")
	for name, failing := range map[string]struct {
		mounts []blkio.ProcessMount
		err    error
	}{
		"no answer":                   {nil, broken},
		"its process cannot be seen":  {nil, storage.ErrNoProcess},
		"a disk that cannot be found": {[]blkio.ProcessMount{{Mountpoint: "/data", Backing: &blkio.Backing{Err: broken}}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			answer := failing
			n, dir := comparing(t, func() ([]blkio.ProcessMount, error) { return answer.mounts, answer.err })
			err := run(t, n, limited("/data wbps=1Mi"), 123, volume)
			if _, ours := errors.AsType[*limitError](err); !ours {
				t.Errorf("got %v, want a failure of ours", err)
			}
			if got := wants(t, n); len(got) != 1 || got["vdb"] == "" {
				t.Errorf("limits of its creation: %v", got)
			}
			answer.mounts, answer.err = []blkio.ProcessMount{at("/data", strayDisk)}, nil
			n.pass(t.Context())
			if got := wants(t, n); got["vdc"] == "" || !strings.Contains(read(t, filepath.Join(dir, cgroupOf("db"), "io.max")), "254:32") {
				t.Errorf("not tried again: %v", got)
			}
		})
	}
}

// TestNothingToCompare verifies that a process that has ended, or that the runtime does not name, is no
// failure.
func TestNothingToCompare(t *testing.T) {
	volume := bind("/mnt/data/tenant/v", "/data", "rbind", "rw")
	n, dir := comparing(t, func() ([]blkio.ProcessMount, error) { return nil, storage.ErrNoProcess })
	write(t, filepath.Join(dir, cgroupOf("db"), "cgroup.events"), "populated 0\n")
	if err := run(t, n, limited("/data wbps=1Mi"), 123, volume); err != nil {
		t.Errorf("ended: %v", err)
	}
	n, _ = comparing(t, func() ([]blkio.ProcessMount, error) {
		t.Error("the mounts of a process were read, although the runtime reported none")
		return nil, nil
	})
	log, logged := logtest.NewNullLogger()
	n.log = log
	if err := run(t, n, limited("/data wbps=1Mi"), 0, volume); err != nil {
		t.Errorf("no process: %v", err)
	}
	if countLogged(logged, "reports no process for a container") != 1 {
		t.Error("the log does not say that the runtime reports no process")
	}
}

func countLogged(hook *logtest.Hook, part string) (n int) {
	for _, e := range hook.AllEntries() {
		if strings.Contains(e.Message, part) {
			n++
		}
	}
	return n
}

// TestManyRedirectedMounts verifies that the work grows with the mounts of the process plus those of the spec,
// and the disks of one filesystem are added once.
func TestManyRedirectedMounts(t *testing.T) {
	const count = 4000
	var spec []inventory.Mount
	var mounts []blkio.ProcessMount
	stray := at("/", strayDisk)
	for i := range count {
		spec = append(spec, bind("/mnt/data/tenant/v", fmt.Sprintf("/data/%d", i), "rbind", "rw"))
		mounts = append(mounts, blkio.ProcessMount{Mountpoint: fmt.Sprintf("/elsewhere/%d", i), Backing: stray.Backing})
	}
	n, _ := comparing(t, func() ([]blkio.ProcessMount, error) { return mounts, nil })
	log, logged := logtest.NewNullLogger()
	n.log = log
	if err := run(t, n, limited("* wbps=1Mi"), 123, spec...); err != nil {
		t.Error(err)
	}
	if got := wants(t, n); got["vdc"] == "" {
		t.Errorf("got %v", got)
	}
	if count := countLogged(logged, "another disk than its path"); count != 1 {
		t.Errorf("logged %d times", count)
	}
}
