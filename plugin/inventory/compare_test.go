package inventory

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// mounted is a mount of a process.
func mounted(at string, b blkio.Backing, readOnly bool) blkio.ProcessMount {
	return blkio.ProcessMount{Mountpoint: at, ReadOnly: readOnly, Backing: &b}
}

// finderWith finds on a host where the first process of each container has these mounts.
func finderWith(h *host, mounts []blkio.ProcessMount, err error) *Finder {
	return &Finder{
		Storage: h, KubeletRoot: "/var/lib/kubelet",
		ProcessMounts: func(context.Context, int, string) ([]blkio.ProcessMount, error) { return mounts, err },
	}
}

// compareTest is the comparison of a container's spec with the mounts of its first process.
type compareTest struct {
	name, value string
	spec        Spec
	process     []blkio.ProcessMount
	want        []string // the facts after it
	added       int
}

func (tt compareTest) run(t *testing.T) {
	h := newHost()
	h.below["/other/below"], h.below["/mnt/data/below"] = on(lowerDisk), on(otherDisk)
	h.Find = func(path string) blkio.Backing {
		if path == "/lower" {
			return on(lowerDisk)
		}
		return twoDisks(path)
	}
	f := finderWith(h, tt.process, nil)
	c, pod := NewContainer(&tt.spec), podWith(tt.value)
	if err := f.Find(t.Context(), pod, Layer{Dir: "/layers"}, &c); err != nil {
		t.Fatal(err)
	}
	if !c.IsUncompared() {
		t.Fatal("there is nothing to compare")
	}
	if err := f.Compare(t.Context(), pod, &c, 1, "pods/c"); err != nil || len(c.Added) != tt.added || c.IsUncompared() {
		t.Errorf("%d added, %v, uncompared %t", len(c.Added), err, c.IsUncompared())
	}
	if diff := cmp.Diff(tt.want, found(&c)); diff != "" {
		t.Error(diff)
	}
}

// spec is an OCI spec with these mounts.
func spec(mounts ...Mount) Spec { return Spec{Mounts: mounts} }

// TestCompare verifies that an undeclared disk of a container gets the limits of the mount around it, or of all
// mounts, if the container may use it.
func TestCompare(t *testing.T) {
	root := blkio.ProcessMount{Mountpoint: "/", IsRoot: true, Backing: &blkio.Backing{FSType: "overlay"}}
	data, readOnlyData := bind("/mnt/data", "/data", "rbind"), bind("/mnt/data", "/data", "rbind", "ro")
	srv, tmp := bind("/srv", "/srv", "rbind"), Mount{Type: "tmpfs", Source: "tmpfs", Destination: "/tmp"}
	moved := func(at string) []blkio.ProcessMount {
		return []blkio.ProcessMount{root, mounted(at, on(lowerDisk), false)}
	}
	for _, tt := range []compareTest{
		{name: "the path led elsewhere", value: "/data wbps=1Mi", spec: spec(data), process: moved("/data"), want: []string{"rootfs vda", "/data vdb vdc"}, added: 1},
		{
			name: "a thousand mounts of it", value: "/data wbps=1Mi", spec: spec(data),
			process: slices.Repeat(moved("/data/a"), 1000), want: []string{"rootfs vda", "/data vdb vdc"}, added: 1,
		},
		{
			name: "at no mount of the spec", value: "/data wbps=1Mi; /srv wbps=1Mi", spec: spec(data, srv), process: moved("/elsewhere"),
			want: []string{"rootfs vda", "/data vdb vdc", "/srv vda vdc"}, added: 1,
		},
		{
			name: "in memory of the spec", value: "/data wbps=1Mi; /tmp wbps=1Mi", spec: spec(data, tmp), process: moved("/tmp"),
			want: []string{"rootfs vda", "/data vdb vdc", "/tmp"}, added: 1,
		},
		{
			name: "at a mount without a limit", value: "/data wbps=1Mi", spec: spec(data, bind("/srv", "/free", "rbind")), process: moved("/free"),
			want: []string{"rootfs vda", "/data vdb vdc", "/free"}, added: 1,
		},
		{
			name: "at a raw block volume", value: "/data wbps=1Mi",
			spec:    Spec{Mounts: []Mount{data}, Devices: []Device{{Path: "/dev/raw", Type: "b", Dev: blkio.Dev{Major: 7}}}},
			process: moved("/dev/raw"), want: []string{"rootfs vda", "/data vdb vdc", "/dev/raw raw"}, added: 1,
		},
		{
			name: "writable in place of read-only", value: "/data rbps=1Mi; /srv wbps=1Mi", spec: spec(readOnlyData, srv), process: moved("/data"),
			want: []string{"rootfs vda", "/data vdb", "/srv vda vdc"}, added: 1,
		},
		{
			name: "read-only in place of read-only", value: "/data rbps=1Mi; /srv wbps=1Mi", spec: spec(readOnlyData, srv),
			process: []blkio.ProcessMount{root, mounted("/data", on(lowerDisk), true)}, want: []string{"rootfs vda", "/data vdb vdc", "/srv vda"}, added: 1,
		},
		{
			name: "and the mounts below", value: "/data wbps=1Mi; /data/below/file wbps=1Mi", spec: spec(data),
			process: moved("/data/elsewhere"), want: []string{"rootfs vda", "/data vdb vdc", "- /data/below vdc vdd"}, added: 1,
		},
	} {
		t.Run(tt.name, tt.run)
	}
}

// TestCompareDeclared verifies that a declared disk of a container gets no more limits: they were decided with
// it, or it has none because no target selects it.
func TestCompareDeclared(t *testing.T) {
	data, free := bind("/mnt/data", "/data", "rbind"), bind("/lower", "/free", "rbind")
	one := func(at string, d blkio.Disk, readOnly bool) []blkio.ProcessMount {
		return []blkio.ProcessMount{mounted(at, on(d), readOnly)}
	}
	root := func(readOnly bool) blkio.ProcessMount {
		b := on(blkio.Disk{Dev: blkio.Dev{Major: 65}, Name: "sdq"}) // of the runtime: not compared
		return blkio.ProcessMount{Mountpoint: "/", IsRoot: true, ReadOnly: readOnly, Backing: &b}
	}
	kmsg := Device{Path: "/dev/kmsg", Type: "c", Dev: blkio.Dev{Major: 1, Minor: 11}}
	raw := Device{Path: "/dev/raw", Type: "b", Dev: lowerDisk.Dev}
	const limit = "/data wbps=1Mi"
	for _, tt := range []compareTest{
		{name: "as declared", value: limit, spec: spec(data), process: append(one("/data", dataDisk, false), root(false)), want: []string{"rootfs vda", "/data vdb"}},
		{name: "read-only", value: limit, spec: spec(data), process: one("/data", dataDisk, true), want: []string{"rootfs vda", "/data vdb"}},
		{
			name: "declared read-only", value: "/data rbps=1Mi", spec: spec(bind("/mnt/data", "/data", "rbind", "ro")),
			process: one("/data", dataDisk, true), want: []string{"rootfs vda", "/data vdb"},
		},
		{
			name: "declared read-only, writable elsewhere", value: "/data rbps=1Mi; /srv wbps=1Mi", spec: spec(bind("/mnt/data", "/data", "rbind", "ro"), bind("/srv", "/srv", "rbind")),
			process: one("/srv", dataDisk, false), want: []string{"rootfs vda", "/data vdb", "/srv vda vdb"}, added: 1,
		},
		{name: "the writable layer's", value: limit, spec: spec(data), process: append(one("/data", rootDisk, false), root(false)), want: []string{"rootfs vda", "/data vdb"}},
		{name: "the read-only layer's", value: limit, spec: spec(data), process: append(one("/data", rootDisk, false), root(true)), want: []string{"rootfs vda", "/data vda vdb"}, added: 1},
		{name: "below it", value: "/data/below/f wbps=1Mi", spec: spec(data), process: one("/data/below", otherDisk, false), want: []string{"rootfs vda", "/data vdb", "- /data/below vdd"}},
		{name: "memory", value: limit, spec: spec(data), process: []blkio.ProcessMount{mounted("/dev/shm", blkio.Backing{FSType: "tmpfs", Reason: "tmpfs is memory, not a disk"}, false)}, want: []string{"rootfs vda", "/data vdb"}},
		{name: "a mount without a limit", value: limit, spec: spec(data, free), process: one("/free", lowerDisk, false), want: []string{"rootfs vda", "/data vdb", "/free"}},
		{name: "a read-only mount without a limit, writable", value: limit, spec: spec(data, bind("/lower", "/free", "rbind", "ro")), process: one("/free", lowerDisk, false), want: []string{"rootfs vda", "/data vdb vdc", "/free"}, added: 1},
		{name: "below a mount without a limit", value: limit, spec: spec(data, bind("/other", "/free", "rbind")), process: one("/free/below", lowerDisk, false), want: []string{"rootfs vda", "/data vdb", "/free"}},
		{name: "below one that shows no mounts below", value: limit, spec: spec(data, bind("/other", "/free", "bind")), process: one("/free/below", lowerDisk, false), want: []string{"rootfs vda", "/data vdb vdc", "/free"}, added: 1},
		{name: "below a volume, where only a path of its own selects it", value: limit, spec: spec(data), process: one("/data/below", otherDisk, false), want: []string{"rootfs vda", "/data vdb"}},
		{name: "a raw block volume", value: limit, spec: Spec{Mounts: []Mount{data}, Devices: []Device{raw}}, process: one("/data", lowerDisk, false), want: []string{"rootfs vda", "/data vdb", "/dev/raw vdc"}},
		{name: "a device of a privileged container", value: limit, spec: Spec{Mounts: []Mount{data}, Devices: []Device{raw, kmsg}}, process: one("/data", lowerDisk, false), want: []string{"rootfs vda", "/data vdb vdc", "/dev/raw vdc"}, added: 1},
	} {
		t.Run(tt.name, tt.run)
	}
}

// TestStrays verifies that Compare keeps a writable filesystem that the spec does not lead to, by its
// mountpoint on the node. It is kept once, also if the comparison is repeated. A copy of the container does not
// change.
func TestStrays(t *testing.T) {
	at := func(mountpoint string, disk blkio.Disk) blkio.Backing {
		b := on(disk)
		b.Mountpoint = mountpoint
		return b
	}
	broken := mounted("/b", blkio.Backing{Reason: "cannot be read", Err: errAnswer}, false)
	process := []blkio.ProcessMount{
		mounted("/data", at("/mnt/data", dataDisk), false), // as declared
		mounted("/data", at("/lower", lowerDisk), false),
		mounted("/data/again", at("/lower", lowerDisk), false),
		mounted("/data/read-only", at("/other", otherDisk), true),
		mounted("/data/elsewhere", at("", otherDisk), false), // mounted in no directory of the node
		broken,
	}
	f := finderWith(newHost(), process, nil)
	c, pod := NewContainer(&Spec{Mounts: []Mount{bind("/mnt/data", "/data", "rbind")}}), podWith("/data wbps=1Mi")
	if err := f.Find(t.Context(), pod, Layer{Dir: "/layers"}, &c); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the broken one has it repeated
		before := c
		had := slices.Clone(before.Strays)
		if err := f.Compare(t.Context(), pod, &c, 1, "pods/c"); !errors.Is(err, errAnswer) {
			t.Fatal(err)
		}
		if d := cmp.Diff([]blkio.Backing{at("/lower", lowerDisk)}, c.Strays); d != "" {
			t.Errorf("-want +got:\n%s", d)
		}
		if d := cmp.Diff(had, before.Strays); d != "" {
			t.Errorf("of the copy, -want +got:\n%s", d)
		}
	}
}

// TestCompareOnce verifies that the comparison does not change an earlier copy of the facts, and that a
// container is compared once, at its start.
func TestCompareOnce(t *testing.T) {
	h := newHost()
	f := finderWith(h, []blkio.ProcessMount{mounted("/data", on(lowerDisk), false)}, nil)
	mount := bind("/mnt/data", "/data", "rbind", "rslave")
	c, pod := NewContainer(&Spec{Mounts: []Mount{mount, mount}}), podWith("/data wbps=1Mi")
	if err := f.Find(t.Context(), pod, Layer{Dir: "/layers"}, &c); err != nil {
		t.Fatal(err)
	}
	before := c
	listed := len(h.listed)
	if err := f.Compare(t.Context(), pod, &c, 1, "pods/c"); err != nil {
		t.Fatal(err)
	}
	if n := len(h.listed) - listed; n != 1 {
		t.Errorf("the mounts below one directory are listed %d times", n)
	}
	if d := cmp.Diff([]string{"rootfs vda", "/data", "/data vdb"}, found(&before)); d != "" {
		t.Errorf("decided with, -want +got:\n%s", d)
	}
	c.Invalidate()
	if err := f.Find(t.Context(), pod, Layer{Dir: "/layers"}, &c); err != nil || c.IsUncompared() {
		t.Errorf("found again: %v, uncompared %t", err, c.IsUncompared())
	}
}

// TestCompareMovedSince verifies that the comparison does not take for declared where the path of a limited
// mount leads by then: a tenant may have led it there.
func TestCompareMovedSince(t *testing.T) {
	h := newHost()
	f := finderWith(h, []blkio.ProcessMount{mounted("/data", on(lowerDisk), false)}, nil)
	c, pod := NewContainer(&Spec{Mounts: []Mount{bind("/mnt/data", "/data", "rbind")}}), podWith("/data wbps=1Mi")
	if err := f.Find(t.Context(), pod, Layer{Dir: "/layers"}, &c); err != nil {
		t.Fatal(err)
	}
	h.Find = func(string) blkio.Backing { return on(lowerDisk) }
	if err := f.Compare(t.Context(), pod, &c, 1, "pods/c"); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"rootfs vda", "/data vdb vdc"}, found(&c)); d != "" {
		t.Error(d)
	}
}

// TestCompareFails verifies that a mount whose disk is unknown is compared again.
func TestCompareFails(t *testing.T) {
	stray := mounted("/data", on(lowerDisk), false)
	for _, tt := range []struct {
		name    string
		process []blkio.ProcessMount
		fails   error // to read the mounts of the process
		table   error // to read those of the node
		added   int   // mounts, whose disks are known
	}{
		{"the process", nil, errAnswer, nil, 0},
		{"the mount table", []blkio.ProcessMount{stray}, nil, errAnswer, 0},
		{"a disk", []blkio.ProcessMount{stray, mounted("/b", blkio.Backing{Reason: "cannot be read", Err: errAnswer}, false)}, nil, nil, 1},
	} {
		h := newHost()
		h.fails = tt.table
		f := finderWith(h, tt.process, tt.fails)
		c, pod := NewContainer(&Spec{Mounts: []Mount{bind("/mnt/data", "/data", "rbind")}}), podWith("/data wbps=1Mi")
		if err := f.Find(t.Context(), pod, Layer{Dir: "/layers"}, &c); err != nil {
			t.Fatal(err)
		}
		err := f.Compare(t.Context(), pod, &c, 1, "pods/c")
		if !errors.Is(err, errAnswer) || !c.IsUncompared() || len(c.Added) != tt.added {
			t.Errorf("%s: %v, uncompared %t, %d added", tt.name, err, c.IsUncompared(), len(c.Added))
		}
	}
	c := NewContainer(&Spec{})
	c.isUncompared = true
	if c.SetCompared(); c.IsUncompared() {
		t.Error("without a process there is nothing to compare")
	}
}

// TestCompareEnds verifies that a container is compared again later if the node does not answer in time. For a
// container with only declared disks, the node is not read again.
func TestCompareEnds(t *testing.T) {
	for _, tt := range []struct {
		name string
		disk blkio.Disk
		want error
	}{{"a disk of its own", dataDisk, nil}, {"another disk", lowerDisk, errAnswer}} {
		h := newHost()
		f := finderWith(h, []blkio.ProcessMount{mounted("/data", on(tt.disk), false)}, nil)
		c, pod := NewContainer(&Spec{Mounts: []Mount{bind("/mnt/data", "/data", "rbind")}}), podWith("/data wbps=1Mi")
		if err := f.Find(t.Context(), pod, Layer{Dir: "/layers"}, &c); err != nil {
			t.Fatal(err)
		}
		late, cancel := context.WithCancelCause(t.Context())
		cancel(errAnswer)
		if err := f.Compare(late, pod, &c, 1, "pods/c"); !errors.Is(err, tt.want) || c.IsUncompared() != (tt.want != nil) {
			t.Errorf("%s, at the deadline: %v, uncompared %t", tt.name, err, c.IsUncompared())
		}
	}
}

// TestIsRedirectable verifies that the kubelet's own directories cannot be led elsewhere by a tenant.
func TestIsRedirectable(t *testing.T) {
	const pods = "/var/lib/kubelet/pods/"
	for _, tt := range []struct {
		source, value string
		want          bool
	}{
		{"/mnt/data", "/data wbps=1Mi", true},
		{"/mnt/data", "rootfs wbps=1Mi", false},
		{pods + "u1/volumes/kubernetes.io~empty-dir/v", "/data wbps=1Mi", false},
		{pods + "u1/volumes/kubernetes.io~empty-dir/v/inside", "/data wbps=1Mi", true},
		{pods + "u1/volumes/kubernetes.io~empty-dir/v/mount", "/data wbps=1Mi", true}, // made by a tenant
		{pods + "u1/volumes/kubernetes.io~csi/v/mount", "/data wbps=1Mi", false},
		{pods + "u1/volumes/kubernetes.io~csi/v/other", "/data wbps=1Mi", true},
		{pods + "u1/volume-subpaths/v/c/0", "/data wbps=1Mi", false},
		{pods + "u1/volume-subpaths/v/c/0/inside", "/data wbps=1Mi", true},
		{pods + "u2/volumes/kubernetes.io~empty-dir/v", "/data wbps=1Mi", true}, // another pod's
	} {
		f := finderWith(newHost(), nil, nil)
		c := NewContainer(&Spec{Mounts: []Mount{bind(tt.source, "/data", "rbind")}})
		if err := f.Find(t.Context(), podWith(tt.value), Layer{Dir: "/layers"}, &c); err != nil {
			t.Fatal(err)
		}
		if c.IsUncompared() != tt.want {
			t.Errorf("%s, %s: uncompared %t", tt.source, tt.value, c.IsUncompared())
		}
	}
	memory := Mount{Type: "tmpfs", Source: "tmpfs", Destination: "/data"}
	for name, tt := range map[string]struct {
		mount Mount
		uid   string
		want  bool
	}{"memory": {memory, "u1", false}, "a pod without a UID": {bind("/mnt/data", "/data", "rbind"), "", true}} {
		f, c, pod := finderWith(newHost(), nil, nil), NewContainer(&Spec{Mounts: []Mount{tt.mount}}), podWith("/data wbps=1Mi")
		pod.UID = tt.uid
		if err := f.Find(t.Context(), pod, Layer{Dir: "/layers"}, &c); err != nil || c.IsUncompared() != tt.want {
			t.Errorf("%s: %v, uncompared %t", name, err, c.IsUncompared())
		}
	}
	c := NewContainer(&Spec{Mounts: []Mount{bind("/mnt/data", "/data", "rbind")}})
	f := Finder{Storage: newHost()}
	if err := f.Find(t.Context(), podWith("/data wbps=1Mi"), Layer{}, &c); err != nil || c.IsUncompared() {
		t.Errorf("without the mounts of processes: %v, %t", err, c.IsUncompared())
	}
}
