package inventory

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/internal/fakenode"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

var (
	lowerDisk = blkio.Disk{Dev: blkio.Dev{Major: 254, Minor: 32}, Name: "vdc"}
	otherDisk = blkio.Disk{Dev: blkio.Dev{Major: 254, Minor: 48}, Name: "vdd"}
	errAnswer = errors.New("input/output error")
)

// host is a Storage with mounts below volumes, which counts the questions.
type host struct {
	fakenode.Resolver
	below   map[string]blkio.Backing // by path on the host
	fails   error                    // to read the mount table
	resolve []string                 // the paths that were asked for
	listed  []string                 // the directories whose mounts were listed
}

func newHost() *host {
	return &host{Resolver: fakenode.NewResolver(twoDisks), below: map[string]blkio.Backing{}}
}

func (h *host) Refresh(context.Context) error { return h.fails }

func (h *host) Resolve(ctx context.Context, path string) *blkio.Backing {
	h.resolve = append(h.resolve, path)
	return h.Resolver.Resolve(ctx, path)
}

func (h *host) Below(_ context.Context, path, rel string) (string, *blkio.Backing, bool) {
	for _, at := range slices.Sorted(maps.Keys(h.below)) {
		if name, found := strings.CutPrefix(at, path+"/"); found && strings.HasPrefix(rel+"/", name+"/") {
			return name, new(h.below[at]), true
		}
	}
	return "", nil, false
}

func (h *host) Submounts(_ context.Context, path string) iter.Seq2[string, *blkio.Backing] {
	h.listed = append(h.listed, path)
	return func(yield func(string, *blkio.Backing) bool) {
		for _, at := range slices.Sorted(maps.Keys(h.below)) {
			if name, found := strings.CutPrefix(at, path+"/"); found && !yield(name, new(h.below[at])) {
				return
			}
		}
	}
}

// Physical has dataDisk made of lowerDisk and of the root disk.
func (h *host) Physical(disk blkio.Dev) ([]blkio.Disk, error) {
	switch disk {
	case dataDisk.Dev:
		return []blkio.Disk{rootDisk, lowerDisk}, nil
	case lowerDisk.Dev:
		return nil, errAnswer
	}
	return h.Resolver.Physical(disk)
}

func (h *host) Device(dev blkio.Dev) blkio.Backing {
	if dev == lowerDisk.Dev {
		return on(lowerDisk)
	}
	return h.Resolver.Device(dev)
}

const (
	containers = "limits.blkio.noderesource.dev/containers"
	volumesDir = "/var/lib/kubelet/pods/u1/volumes/"
)

// podWith is a pod with an annotation for all containers.
func podWith(value string) *Pod {
	return &Pod{UID: "u1", Sandbox: "s1", Targets: annotation.Parse(map[string]string{containers: value}).Targets()}
}

// found returns the disks of a container in a form to compare: "/data vdb".
func found(c *Container) []string {
	text := func(path string, b *blkio.Backing) string {
		var names []string
		for _, d := range b.Disks {
			names = append(names, d.Name)
		}
		return strings.Join(append([]string{path}, names...), " ")
	}
	out := []string{text("rootfs", &c.Facts.Rootfs)}
	for i := range c.Facts.Mounts {
		m := &c.Facts.Mounts[i]
		out = append(out, text(m.Destination, m.Backing))
		for k := range m.Below {
			out = append(out, "- "+text(m.Below[k].Path, m.Below[k].Backing))
		}
	}
	return out
}

// TestFind verifies that only mounts that a target can select are resolved, and each path once.
func TestFind(t *testing.T) {
	mounts := []Mount{
		bind("/mnt/data", "/data", "rbind", "rw"),
		bind("/mnt/data", "/again/", "rbind", "ro"),
		bind("/srv", "/srv", "bind"),
		{Type: "tmpfs", Source: "tmpfs", Destination: "/tmp"},
	}
	for _, tt := range []struct {
		value    string
		want     []string
		resolved string
		listed   int
	}{
		{"/data wbps=1Mi", []string{"rootfs vda", "/data vdb", "/again", "/srv", "/tmp"}, "/layers /mnt/data", 0},
		{"rootfs wbps=1Mi", []string{"rootfs vda", "/data", "/again", "/srv", "/tmp"}, "/layers", 0},
		{"/data/below/file wbps=1Mi", []string{"rootfs vda", "/data vdb", "- /data/below vdc", "/again", "/srv", "/tmp"}, "/layers /mnt/data", 0},
		{
			"* wbps=1Mi",
			[]string{"rootfs vda", "/data vdb", "- /data/below vdc", "/again vdb", "/srv vda", "/tmp"},
			"/layers /mnt/data /srv", 1,
		},
		{"@db wbps=1Mi", []string{"rootfs vda", "/data", "/again", "/srv", "/tmp"}, "/layers", 0},
	} {
		h := newHost()
		h.below["/mnt/data/below"] = on(lowerDisk)
		f := Finder{Storage: h, KubeletRoot: "/var/lib/kubelet"}
		c := NewContainer(&Spec{Name: "c", Mounts: mounts})
		if err := f.Find(t.Context(), podWith(tt.value), Layer{Dir: "/layers"}, &c); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tt.want, found(&c)); diff != "" {
			t.Errorf("%s: %s", tt.value, diff)
		}
		if got := strings.Join(h.resolve, " "); got != tt.resolved || len(h.listed) != tt.listed {
			t.Errorf("%s: resolved %q and listed %q, want %q and %d", tt.value, got, h.listed, tt.resolved, tt.listed)
		}
		if !c.IsResolved() || c.Err() != nil || c.Follows() || c.IsUncompared() {
			t.Errorf("%s: %+v", tt.value, c)
		}
	}
}

// TestFindBelow verifies that the mounts below a volume that a path or "*" means: each once, and for "*" one
// for each further set of disks.
func TestFindBelow(t *testing.T) {
	memory := blkio.Backing{FSType: "tmpfs", Reason: "tmpfs is memory, not a disk"}
	two := blkio.Backing{FSType: "btrfs", Disks: []blkio.Disk{dataDisk, lowerDisk}}
	for _, tt := range []struct {
		name, value string
		mount       Mount
		below       map[string]blkio.Backing
		want        []string
	}{
		{"a path in the volume", "/data/none wbps=1Mi", bind("/mnt/data", "/data", "rbind"), nil, []string{"/data vdb"}},
		{"the volume, and a mount at its source", "/data wbps=1Mi", bind("/mnt/data", "/data", "rbind"), map[string]blkio.Backing{"/mnt/data/": on(lowerDisk)}, []string{"/data vdb"}},
		{
			"two paths in one mount", "/data/x/a wbps=1Mi; /data/x/b wbps=1Mi", bind("/mnt/data", "/data/", "rbind"),
			map[string]blkio.Backing{"/mnt/data/x": on(lowerDisk)},
			[]string{"/data vdb", "- /data/x vdc"},
		},
		{
			"two mounts", "/data/x wbps=1Mi; /data/y wbps=1Mi", bind("/mnt/data", "/data", "rbind"),
			map[string]blkio.Backing{"/mnt/data/x": on(lowerDisk), "/mnt/data/y": memory},
			[]string{"/data vdb", "- /data/x vdc", "- /data/y"},
		},
		{"not recursive", "/data/x wbps=1Mi; * wbps=1Mi", bind("/mnt/data", "/data", "bind"), map[string]blkio.Backing{"/mnt/data/x": on(lowerDisk)}, []string{"/data vdb"}},
		{
			"of the same disk", "* wbps=1Mi", bind("/mnt/data", "/data", "rbind"),
			map[string]blkio.Backing{"/mnt/data/x": on(dataDisk), "/mnt/data/y": on(lowerDisk), "/mnt/data/z": on(lowerDisk), "/mnt/data/mem": memory},
			[]string{"/data vdb", "- /data/y vdc"},
		},
		{
			"of the same disk, which the volume may only read", "* rbps=1Mi", bind("/mnt/data", "/data", "rbind", "ro"),
			map[string]blkio.Backing{"/mnt/data/x": on(dataDisk)},
			[]string{"/data vdb", "- /data/x vdb"},
		},
		{
			"of one more disk", "* wbps=1Mi", bind("/mnt/data", "/data", "rbind"),
			map[string]blkio.Backing{"/mnt/data/x": two, "/mnt/data/y": two},
			[]string{"/data vdb", "- /data/x vdb vdc"},
		},
	} {
		h := newHost()
		h.below = tt.below
		f, c := Finder{Storage: h}, NewContainer(&Spec{Mounts: []Mount{tt.mount}})
		if err := f.Find(t.Context(), podWith(tt.value), Layer{Dir: "/layers"}, &c); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(tt.want, found(&c)[1:]); d != "" {
			t.Errorf("%s: -want +got:\n%s", tt.name, d)
		}
	}
}

// TestFindReasons verifies the reasons for error messages why a mount has no disks.
func TestFindReasons(t *testing.T) {
	mounts := []Mount{bind("/srv", "/srv", "rbind"), {Type: "tmpfs", Source: "tmpfs", Destination: "/tmp"}, {Type: "proc", Source: "proc", Destination: "/proc"}}
	f, c := Finder{Storage: newHost()}, NewContainer(&Spec{Mounts: mounts})
	if err := f.Find(t.Context(), podWith("/tmp wbps=1Mi; /elsewhere wbps=1Mi"), Layer{Unknown: "no answer"}, &c); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range c.Facts.Mounts {
		got = append(got, m.Backing.Reason)
	}
	want := []string{"not resolved: no annotation names it", "tmpfs is not stored on a disk", "not resolved: no annotation names it"}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	if d := cmp.Diff([]UnresolvedMount{{Source: "/srv", Self: true, Below: true}}, c.Unresolved()); d != "" {
		t.Errorf("unresolved, -want +got:\n%s", d)
	}
	if err := c.Err(); err != nil || !c.IsResolved() { // of the writable layer, which no target selects
		t.Errorf("resolved %t, %v", c.IsResolved(), err)
	}
	c = NewContainer(&Spec{Mounts: mounts})
	if err := f.Find(t.Context(), podWith("rootfs wbps=1Mi"), Layer{Unknown: "no answer"}, &c); err != nil {
		t.Fatal(err)
	}
	if err := c.Err(); err == nil || err.Error() != "no answer" || c.IsResolved() || c.Invalidate() || c.IsResolved() {
		t.Errorf("with a target that selects the layer: resolved %t, %v", c.IsResolved(), err)
	}
}

// TestFindVolume verifies that a volume is known by its name where the kubelet's directories have it.
func TestFindVolume(t *testing.T) {
	h := newHost()
	f := Finder{Storage: h, KubeletRoot: "/var/lib/kubelet"}
	c := NewContainer(&Spec{Mounts: []Mount{bind(volumesDir+"kubernetes.io~empty-dir/scratch", "/scratch", "rbind")}})
	if err := f.Find(t.Context(), podWith("@scratch wbps=1Mi"), Layer{Dir: "/layers"}, &c); err != nil {
		t.Fatal(err)
	}
	m := c.Facts.Mounts[0]
	if m.Volume != "scratch" || m.VolumePlugin != "kubernetes.io/empty-dir" || len(m.Backing.Disks) != 1 {
		t.Errorf("%+v", m)
	}
}

// TestFindDevices verifies that a raw block volume is a mount of its own, and the devices of a privileged
// container are none that "*" means.
func TestFindDevices(t *testing.T) {
	raw := Device{Path: "/dev/data/", Type: "b", Dev: lowerDisk.Dev}
	for _, tt := range []struct {
		name     string
		devices  []Device
		injected []bool
	}{
		{"a volume", []Device{raw, {Path: "/dev/null", Type: "c", Dev: blkio.Dev{Major: 1, Minor: 3}}}, []bool{false}},
		{"no slash at its beginning", []Device{{Path: "dev/data", Type: "b", Dev: lowerDisk.Dev}}, []bool{false}},
		{"privileged, /dev/kmsg", []Device{raw, {Path: "/dev/kmsg", Type: "c", Dev: blkio.Dev{Major: 1, Minor: 11}}}, []bool{true}},
		{"privileged, /dev/mem", []Device{{Path: "/dev/mem", Type: "c", Dev: blkio.Dev{Major: 1, Minor: 1}}, raw}, []bool{true}},
		{"a block device of that number", []Device{raw, {Path: "/dev/ram1", Type: "b", Dev: blkio.Dev{Major: 1, Minor: 1}}}, []bool{false, false}},
	} {
		f := Finder{Storage: newHost()}
		c := NewContainer(&Spec{Devices: tt.devices})
		if err := f.Find(t.Context(), podWith("* wbps=1Mi"), Layer{Dir: "/layers"}, &c); err != nil {
			t.Fatal(err)
		}
		var injected []bool
		for _, m := range c.Facts.Mounts {
			injected = append(injected, m.Injected)
		}
		if !slices.Equal(injected, tt.injected) || c.Facts.Mounts[0].Destination != "/dev/data" {
			t.Errorf("%s: %+v", tt.name, c.Facts.Mounts)
		}
	}
}

// TestFindAgain verifies that a disk that could not be found is searched for again, and that the disks found
// before stay.
func TestFindAgain(t *testing.T) {
	h := newHost()
	h.Find = func(path string) blkio.Backing {
		if path == "/mnt/data" {
			return blkio.Backing{Reason: "cannot be read", Err: errAnswer}
		}
		return twoDisks(path)
	}
	f := Finder{Storage: h}
	c := NewContainer(&Spec{Mounts: []Mount{bind("/mnt/data", "/data", "rbind"), bind("/srv", "/srv", "rbind")}})
	pod, layer := podWith("/data wbps=1Mi; /srv wbps=1Mi"), Layer{Dir: "/layers"}
	if err := f.Find(t.Context(), pod, layer, &c); err != nil {
		t.Fatal(err)
	}
	if c.IsResolved() || !errors.Is(c.Err(), errAnswer) {
		t.Errorf("after the failure: resolved %t, %v", c.IsResolved(), c.Err())
	}
	h.Find = func(path string) blkio.Backing { // /srv is on another disk now
		if path == "/srv" {
			return on(lowerDisk)
		}
		return twoDisks(path)
	}
	if err := f.Find(t.Context(), pod, layer, &c); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"rootfs vda", "/data vdb", "/srv vda vdc"}, found(&c)); diff != "" {
		t.Error(diff)
	}
	if !c.IsResolved() || c.Err() != nil {
		t.Errorf("in the end: %v", c.Err())
	}
}

// TestFindTooLate verifies that at the deadline nothing is half found.
func TestFindTooLate(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	h := newHost()
	h.Find = func(path string) blkio.Backing {
		if path == "/mnt/data" {
			cancel(errAnswer)
		}
		return twoDisks(path)
	}
	f := Finder{Storage: h}
	c := NewContainer(&Spec{Mounts: []Mount{bind("/mnt/data", "/data"), bind("/srv", "/srv")}})
	err := f.Find(ctx, podWith("* wbps=1Mi"), Layer{Dir: "/layers"}, &c)
	if err == nil || c.IsResolved() || len(c.Facts.Mounts) != 0 {
		t.Errorf("got %v, %+v", err, c.Facts)
	}
	// A deadline after the last mount has answered changes nothing.
	c = NewContainer(&Spec{Mounts: []Mount{bind("/mnt/data", "/data")}})
	ctx, cancel = context.WithCancelCause(t.Context())
	defer cancel(nil)
	if err := f.Find(ctx, podWith("* wbps=1Mi"), Layer{Dir: "/layers"}, &c); err != nil || !c.IsResolved() {
		t.Errorf("got %v", err)
	}
}

// TestFindManyMounts verifies that a directory that is mounted a thousand times is resolved once, and that all
// its mounts share one list.
func TestFindManyMounts(t *testing.T) {
	h := newHost()
	h.below["/mnt/data/below"] = on(lowerDisk)
	var spec Spec
	for i := range 1000 {
		spec.Mounts = append(spec.Mounts, bind("/mnt/data", fmt.Sprintf("/m%d", i), "rbind"))
	}
	c := NewContainer(&spec)
	f := Finder{Storage: h}
	if err := f.Find(t.Context(), podWith("* wbps=1Mi"), Layer{Dir: "/layers"}, &c); err != nil {
		t.Fatal(err)
	}
	if len(h.resolve) != 2 || len(h.listed) != 1 {
		t.Errorf("%d paths resolved and %d listed, want 2 and 1", len(h.resolve), len(h.listed))
	}
	last := c.Facts.Mounts[999]
	if len(last.Backing.Disks) != 1 || len(last.Below) != 0 {
		t.Errorf("the last one is on %+v", last)
	}
}

// TestKubeletElsewhere verifies that volumes have their names where the kubelet's directory is another one than --kubelet-root names.
// Their mounts are compared with those of the process.
func TestKubeletElsewhere(t *testing.T) {
	const uid = "0b54f3c8-1111-4222-8333-444455556666"
	f := Finder{Storage: newHost(), KubeletRoot: "/var/lib/kubelet"}
	pod := Pod{UID: uid, Targets: annotation.Parse(map[string]string{"limits.blkio.noderesource.dev/container.db": "@cache wbps=10Mi"}).Targets()}
	for root, isKubelets := range map[string]bool{"/var/lib/kubelet": true, "/data/kubelet": false, "/var/lib/k0s/kubelet": false} {
		source := root + "/pods/" + uid + "/volumes/kubernetes.io~empty-dir/cache"
		got := f.declaredMounts(&pod, Layer{}, &Spec{Name: "db", Mounts: []Mount{bind(source, "/cache", "rbind", "rw")}})
		if got[0].Volume != "cache" || got[0].VolumePlugin != "kubernetes.io/empty-dir" {
			t.Errorf("%s: volume %q of %q", root, got[0].Volume, got[0].VolumePlugin)
		}
		if f.isKubelets(uid, source) != isKubelets { // a tenant's link may lead there, once it knows the UID
			t.Errorf("%s: the mount is taken for the kubelet's: %t", root, !isKubelets)
		}
	}
}
