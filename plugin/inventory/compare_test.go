package inventory

import (
	"context"
	"errors"
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

// TestCompare: a disk that a container was not meant to have gets the limits of the mount
// around it, or of all, if the container may use it.
func TestCompare(t *testing.T) {
	root := blkio.ProcessMount{Mountpoint: "/", IsRoot: true, Backing: &blkio.Backing{FSType: "overlay"}}
	for _, tt := range []struct {
		name, value string
		mounts      []Mount
		process     []blkio.ProcessMount
		want        []string
		added       int
	}{
		{
			"as declared", "/data wbps=1Mi",
			[]Mount{bind("/mnt/data", "/data", "rbind")},
			[]blkio.ProcessMount{root, mounted("/data", on(dataDisk), false)},
			[]string{"rootfs vda", "/data vdb"},
			0,
		},
		{
			"the path led elsewhere", "/data wbps=1Mi",
			[]Mount{bind("/mnt/data", "/data", "rbind")},
			[]blkio.ProcessMount{root, mounted("/data", on(lowerDisk), false)},
			[]string{"rootfs vda", "/data vdb vdc"},
			1,
		},
		{
			"a thousand mounts of it", "/data wbps=1Mi",
			[]Mount{bind("/mnt/data", "/data", "rbind")},
			func() []blkio.ProcessMount {
				one := mounted("/data/a", on(lowerDisk), false)
				return []blkio.ProcessMount{one, one, one}
			}(),
			[]string{"rootfs vda", "/data vdb vdc"},
			1,
		},
		{
			"at no mount of the spec", "/data wbps=1Mi; /srv wbps=1Mi",
			[]Mount{bind("/mnt/data", "/data", "rbind"), bind("/srv", "/srv", "rbind")},
			[]blkio.ProcessMount{mounted("/elsewhere", on(lowerDisk), false)},
			[]string{"rootfs vda", "/data vdb vdc", "/srv vda vdc"},
			1,
		},
		{
			"what no limit is asked for", "/data wbps=1Mi",
			[]Mount{bind("/mnt/data", "/data", "rbind"), bind("/lower", "/free", "rbind")},
			[]blkio.ProcessMount{mounted("/free", on(lowerDisk), false)},
			[]string{"rootfs vda", "/data vdb", "/free"},
			0,
		},
		{
			"mounted below what no limit is asked for", "/data wbps=1Mi",
			[]Mount{bind("/mnt/data", "/data", "rbind"), bind("/other", "/free", "rbind")},
			[]blkio.ProcessMount{mounted("/free/below", on(lowerDisk), false)},
			[]string{"rootfs vda", "/data vdb", "/free"},
			0,
		},
		{
			"writable in place of read-only", "/data rbps=1Mi; /srv wbps=1Mi",
			[]Mount{bind("/mnt/data", "/data", "rbind", "ro"), bind("/srv", "/srv", "rbind")},
			[]blkio.ProcessMount{mounted("/data", on(lowerDisk), false)},
			[]string{"rootfs vda", "/data vdb", "/srv vda vdc"},
			1,
		},
		{
			"read-only in place of read-only", "/data rbps=1Mi; /srv wbps=1Mi",
			[]Mount{bind("/mnt/data", "/data", "rbind", "ro"), bind("/srv", "/srv", "rbind")},
			[]blkio.ProcessMount{mounted("/data", on(lowerDisk), true)},
			[]string{"rootfs vda", "/data vdb vdc", "/srv vda"},
			1,
		},
		{
			"memory", "/data wbps=1Mi",
			[]Mount{bind("/mnt/data", "/data", "rbind")},
			[]blkio.ProcessMount{mounted("/dev/shm", blkio.Backing{FSType: "tmpfs", Reason: "tmpfs is memory, not a disk"}, false)},
			[]string{"rootfs vda", "/data vdb"},
			0,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := newHost()
			h.below["/other/below"] = on(lowerDisk)
			h.disks.resolve = func(path string) blkio.Backing {
				if path == "/lower" {
					return on(lowerDisk)
				}
				return twoDisks(path)
			}
			f := finderWith(h, tt.process, nil)
			c, pod := NewContainer(&Spec{Mounts: tt.mounts}), podWith(tt.value)
			if err := f.Find(t.Context(), pod, Layer{Dir: "/layers"}, &c); err != nil {
				t.Fatal(err)
			}
			if !c.IsUncompared() {
				t.Fatal("there is nothing to compare")
			}
			added, err := f.Compare(t.Context(), pod, &c, 1, "pods/c")
			if err != nil || len(added) != tt.added || c.IsUncompared() {
				t.Errorf("%d added, %v, uncompared %t", len(added), err, c.IsUncompared())
			}
			if diff := cmp.Diff(tt.want, found(&c)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestCompareFails: what cannot be known is compared again.
func TestCompareFails(t *testing.T) {
	stray := mounted("/data", on(lowerDisk), false)
	for _, tt := range []struct {
		name    string
		process []blkio.ProcessMount
		fails   error // to read the mounts of the process
		table   error // to read those of the node
	}{
		{"the process", nil, errAnswer, nil},
		{"the mount table", []blkio.ProcessMount{stray}, nil, errAnswer},
		{"a disk", []blkio.ProcessMount{stray, mounted("/b", blkio.Backing{Reason: "cannot be read", Err: errAnswer}, false)}, nil, nil},
	} {
		h := newHost()
		h.fails = tt.table
		f := finderWith(h, tt.process, tt.fails)
		c, pod := NewContainer(&Spec{Mounts: []Mount{bind("/mnt/data", "/data", "rbind")}}), podWith("/data wbps=1Mi")
		if err := f.Find(t.Context(), pod, Layer{Dir: "/layers"}, &c); err != nil {
			t.Fatal(err)
		}
		if _, err := f.Compare(t.Context(), pod, &c, 1, "pods/c"); !errors.Is(err, errAnswer) || !c.IsUncompared() {
			t.Errorf("%s: %v, uncompared %t", tt.name, err, c.IsUncompared())
		}
	}
	c := NewContainer(&Spec{})
	c.uncompared = []Mount{{}}
	if c.SetCompared(); c.IsUncompared() {
		t.Error("without a process there is nothing to compare")
	}
}

// TestIsRedirectable: the kubelet's own directories cannot be led elsewhere by a tenant.
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
	c := NewContainer(&Spec{Mounts: []Mount{bind("/mnt/data", "/data", "rbind")}})
	f := Finder{Storage: newHost()}
	if err := f.Find(t.Context(), podWith("/data wbps=1Mi"), Layer{}, &c); err != nil || c.IsUncompared() {
		t.Errorf("without the mounts of processes: %v, %t", err, c.IsUncompared())
	}
}
