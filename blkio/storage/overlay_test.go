package storage

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio"
)

func TestParseLayers(t *testing.T) {
	for options, want := range map[string]layers{
		"rw,lowerdir=/l1:/l2,upperdir=/u,workdir=/w,xino=off": {upper: "/u", lower: []string{"/l1", "/l2"}},
		"ro,lowerdir=/l1::/data,redirect_dir=on":              {lower: []string{"/l1", "/data"}},
		"rw,lowerdir+=/a:b,lowerdir+=/c,datadir+=/d":          {lower: []string{"/a:b", "/c", "/d"}},
		`rw,lowerdir=/a\134:b\040c:/d\054e,upperdir=/u\134v`:  {upper: `/u\v`, lower: []string{"/a:b c", "/d,e"}},
		`rw,lowerdir=/end\`:                                   {lower: []string{`/end\`}},
		"rw":                                                  {},
		"":                                                    {},
	} {
		if diff := cmp.Diff(want, parseLayers(options), cmp.AllowUnexported(layers{})); diff != "" {
			t.Errorf("%q: %s", options, diff)
		}
	}
}

func FuzzParseLayers(f *testing.F) {
	f.Add(`rw,lowerdir=/a\134:b\040c::/d\054e,upperdir=/u`)
	f.Fuzz(func(t *testing.T, options string) {
		for _, dir := range parseLayers(options).lower {
			if dir == "" && !strings.Contains(options, "+=") {
				t.Errorf("%q has an empty layer", options)
			}
		}
	})
}

const overlayMounts = `20 1 8:1 / / rw - ext4 /dev/sda1 rw
21 20 8:17 / /data rw - xfs /dev/sdb1 rw
22 20 0:30 / /run rw - tmpfs tmpfs rw
23 20 0:31 / /srv/nfs rw - nfs4 host:/ rw
24 20 8:32 / /covered rw - ext4 /dev/sdc1 rw
25 24 8:49 / /covered/inner rw - vfat /dev/sdd1 rw
30 20 0:60 / /m/one rw - overlay overlay rw,lowerdir=/l,upperdir=/data/u,workdir=/data/w
31 20 0:61 / /m/same rw - overlay overlay rw,lowerdir=/data/s/1/fs:/data/s/2/fs,upperdir=/data/s/3/fs,workdir=/data/s/3/work
32 20 0:62 / /m/read rw - overlay overlay ro,lowerdir=/data/a/b:/l/a/b
33 20 0:63 / /m/memory rw - overlay overlay rw,lowerdir=/l,upperdir=/run/u,workdir=/run/w
34 20 0:64 / /m/network rw - overlay overlay rw,lowerdir=/srv/nfs/a/b,upperdir=/data/u,workdir=/data/w
35 20 0:65 / /m/none rw - overlay overlay ro,lowerdir=/srv/nfs/a:/run/b/c
36 20 0:66 / /m/relative rw - overlay overlay rw,lowerdir=96/fs:95/fs,upperdir=/data/97/fs,workdir=/data/97/work
37 20 0:67 / /m/linked rw - overlay overlay rw,lowerdir=/link/l/x,upperdir=/link/u,workdir=/link/w
38 24 0:68 / /covered rw - overlay overlay rw,lowerdir=/covered/l,upperdir=/covered/u,workdir=/covered/w
39 20 0:69 / /m/nested rw - overlay overlay rw,lowerdir=/m/one/l,upperdir=/data/n,workdir=/data/w
40 20 0:70 / /m/high rw - overlay overlay rw,lowerdir=/l,upperdir=/m/higher/u,workdir=/m/higher/w
42 20 0:72 / /m/elsewhere rw - overlay overlay rw,lowerdir=/l,upperdir=/csi-data/u,workdir=/csi-data/w
43 20 0:73 / /m/mixed rw - overlay overlay ro,lowerdir=96/fs:/data/a/b
44 20 0:74 / /m/remote rw - overlay overlay rw,lowerdir=/l,upperdir=/below/disk/u,workdir=/below/disk/w
45 20 0:75 / /below rw - nfs4 host:/ rw
46 45 8:32 / /below/disk rw - ext4 /dev/sdc rw
41 20 0:71 / /m/higher rw - overlay overlay rw,lowerdir=/l,upperdir=/m/high/u,workdir=/m/high/w
`

func TestResolveOverlay(t *testing.T) {
	n := newFakeNode(t, overlayMounts)
	n.symlink(t, "/data", "/link")
	for _, dir := range []string{
		"/l/a/b", "/l/x", "/data/u", "/data/s/1/fs", "/data/s/2/fs", "/data/s/3/fs", "/data/a/b", "/data/97/fs",
		"/data/l/x", "/data/n", "/m/one/l", "/m/higher/u", "/m/high/u", "/run/u", "/run/b/c", "/below/disk/u",
	} {
		n.mkdir(t, dir)
	}
	on := func(point string, disks ...blkio.Disk) blkio.Backing {
		return blkio.Backing{Mountpoint: point, FSType: "overlay", Disks: disks}
	}
	without := func(point, reason string) blkio.Backing {
		return blkio.Backing{Mountpoint: point, FSType: "overlay", Reason: reason}
	}
	warned := func(b blkio.Backing, kind blkio.WarningKind, text string) blkio.Backing {
		b.Warning = &blkio.Warning{Kind: kind, Text: text}
		return b
	}
	const nfs = "nfs4 is a network filesystem: there is no local disk to limit"
	for in, want := range map[string]blkio.Backing{
		"/m/one":       on("/m/one", sda, sdb),
		"/m/same/a":    on("/m/same", sdb),
		"/m/read":      on("/m/read", sda, sdb),
		"/m/memory":    without("/m/memory", "the upper layer of this overlay: tmpfs is memory, not a disk"),
		"/m/network":   warned(on("/m/network", sdb), "", "reads of a lower layer of this overlay are not limited: "+nfs),
		"/m/none":      without("/m/none", "no layer of this overlay is on a disk: "+nfs),
		"/m/relative":  warned(on("/m/relative", sdb), "", "reads of a lower layer of this overlay are not limited: the kernel reports it by a relative path"),
		"/m/linked":    on("/m/linked", sdb),
		"/covered/a":   on("/covered", sdc), // not the overlay itself
		"/m/elsewhere": without("/m/elsewhere", "the upper layer of this overlay: its directory does not exist on this node"),
		"/m/mixed":     warned(on("/m/mixed", sdb), "", "reads of a lower layer of this overlay are not limited: the kernel reports it by a relative path"),
		"/m/remote":    without("/m/remote", "the upper layer of this overlay: its place is below nfs4, which could hang"),
		"/m/nested":    on("/m/nested", sda, sdb),
		"/m/high": without("/m/high",
			strings.Repeat("the upper layer of this overlay: ", 3)+"too many overlays are stacked"),
	} {
		for _, attempt := range []string{"first", "again"} {
			if diff := cmp.Diff(want, *n.Resolve(t.Context(), in)); diff != "" {
				t.Errorf("%s, %s: %s", in, attempt, diff)
			}
		}
	}
}

// TestResolveFiles verifies that a filesystem from a file is on the disks of the file, also as a layer of an overlay, and mounted over
// its own file. containerd mounts layers of images like that (erofs).
func TestResolveFiles(t *testing.T) {
	const snapshots = "/var/lib/containerd/snapshots/"
	n := newFakeNode(t, `20 1 8:1 / / rw - ext4 /dev/sda1 rw
21 20 8:17 / /var/lib/containerd rw - xfs /dev/sdb1 rw
30 21 0:61 / `+snapshots+`7/fs ro - erofs `+snapshots+`7/layer.erofs ro,user_xattr,acl
31 20 0:62 / /rootfs ro - overlay overlay ro,lowerdir=`+snapshots+`7/fs:`+snapshots+`6/fs
32 20 0:63 / /img ro - erofs /link/snapshots/7/layer.erofs ro
33 20 0:64 / /over ro - erofs /over/layer.erofs ro
34 20 0:65 / /round/a ro - erofs /round/b/x ro
35 20 0:66 / /round/b ro - erofs /round/a/x ro
36 20 0:67 / /cached ro - erofs none ro,fsid=x
37 20 0:68 / /memory ro - erofs /tmp/x ro
38 20 0:69 / /tmp rw - tmpfs tmpfs rw
39 20 8:32 / /device ro - erofs /dev/sdc ro
`)
	n.symlink(t, "/var/lib/containerd", "/link")
	for _, file := range []string{snapshots + "7/layer.erofs", snapshots + "6/fs", "/over", "/tmp/x"} {
		n.mkdir(t, file)
	}
	for in, want := range map[string]string{
		snapshots + "7/fs/a": "sdb", "/rootfs": "sdb", "/img/a": "sdb", "/over": "sda", "/device": "sdc",
		"/round/a": strings.Repeat("the file of this erofs: ", 3) + "too many overlays are stacked",
		"/cached":  "erofs has no block device, only the device number 0:67",
		"/memory":  "the file of this erofs: tmpfs is memory, not a disk",
	} {
		for _, attempt := range []string{"first", "again"} {
			b := n.Resolve(t.Context(), in)
			got := b.Reason
			if len(b.Disks) == 1 {
				got = b.Disks[0].Name
			}
			if got != want || b.Warning != nil {
				t.Errorf("%s, %s: %+v, want %s", in, attempt, b, want)
			}
		}
	}
	foreign := n.current.Load().backForeign(t.Context(), &Mount{FSType: "erofs", Source: snapshots + "7/layer.erofs", Dev: blkio.Dev{Minor: 90}}, nil)
	if diff := cmp.Diff([]blkio.Disk{sdb}, foreign.Disks); diff != "" {
		t.Errorf("in another mount namespace: %s", diff)
	}
}

// TestResolveRealtime verifies that the data of XFS with a realtime device is on that disk. A log device has no data.
func TestResolveRealtime(t *testing.T) {
	n := newFakeNode(t, `20 1 8:1 / / rw - ext4 /dev/sda1 rw
21 20 8:17 / /zoned rw,relatime shared:1 - xfs /dev/sdb1 rw,attr2,inode64,logbufs=8,logbsize=32k,rtdev=/dev/sdd,noquota
22 20 8:32 / /log rw - xfs /dev/sdc rw,logdev=/dev/sda,noquota
23 20 259:300 / /lost rw - xfs /dev/nvme0n1p1 rw,rtdev=/dev/sdr
`)
	for in, want := range map[string]blkio.Backing{
		"/zoned/a": {Mountpoint: "/zoned", FSType: "xfs", Disks: []blkio.Disk{sdb, sdd}},
		"/log":     {Mountpoint: "/log", FSType: "xfs", Disks: []blkio.Disk{sdc}},
		"/lost":    {Mountpoint: "/lost", FSType: "xfs", Reason: "the realtime device /dev/sdr: block device \"/dev/sdr\": sdr: no such disk", Missing: true},
	} {
		if diff := cmp.Diff(want, *n.Resolve(t.Context(), in)); diff != "" {
			t.Errorf("%s: -want +got:\n%s", in, diff)
		}
	}
	if got := n.MountedDisks(); len(got) != 5 || !got[sdd.Dev] {
		t.Errorf("mounted are %v", got)
	}
	if got := n.Filesystems()[1].Devices; len(got) != 2 || got[1] != sdd {
		t.Errorf("the devices of /zoned are %v", got)
	}
}

// TestBeneath verifies that mounts that an overlay covers differ from mounts on it.
func TestBeneath(t *testing.T) {
	table, err := ParseMountTable(strings.NewReader(overlayMounts))
	if err != nil {
		t.Fatal(err)
	}
	over, ok := table.Find("/covered")
	if !ok || over.FSType != "overlay" {
		t.Fatalf("got %+v", over)
	}
	for p, want := range map[string]string{"/covered/u": "ext4", "/covered/inner/u": "vfat", "/": "ext4"} {
		if m := table.beneath(over, p); m == nil || m.FSType != want {
			t.Errorf("%s: got %+v, want %s", p, m, want)
		}
	}
}
