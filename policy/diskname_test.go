package policy

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// stacked returns a container whose data is on a logical volume on sdb, which has a link of udev.
func stacked() Container {
	c := Container{Name: "db", Rootfs: on(sda), MemoryLimited: true, Mounts: []Mount{
		mount("/data", on(lv)), readOnly(mount("/ro", on(sdc))), injected(mount("/etc/hosts", on(loop))), mount("/tmp", tmpfs()),
	}}
	c.Under = map[blkio.Dev][]blkio.Disk{lv.Dev: {sdb}}
	c.Links = map[blkio.Dev][]string{sdb.Dev: {"/dev/disk/by-id/ata-Some_SSD"}, lv.Dev: {"/dev/mapper/vg-lv", "/dev/vg/lv"}}
	c.Undeclared = []blkio.Disk{plugged}
	return c
}

var (
	lv      = blkio.Disk{Dev: blkio.Dev{Major: 253}, Name: "dm-0"}
	loop    = blkio.Disk{Dev: blkio.Dev{Major: 7}, Name: "loop0"}
	plugged = blkio.Disk{Dev: blkio.Dev{Major: 259}, Name: "nvme0n1"}
)

// TestDiskByName verifies which disks disk:GLOB selects, and which value holds on each.
func TestDiskByName(t *testing.T) {
	for _, tt := range []struct {
		name, class   string
		want, skipped []string
	}{
		{name: "each", class: `["disk:* wbps=1Mi"]`, want: []string{"sda wbps=1048576", "sdb wbps=1048576", "sdc wbps=1048576", "dm-0 wbps=1048576", "nvme0n1 wbps=1048576"}},
		{name: "below a logical volume", class: `["disk:sdb rbps=1Mi"]`, want: []string{"sdb rbps=1048576"}},
		{name: "an observed one", class: `["disk:nvme* rbps=1Mi"]`, want: []string{"nvme0n1 rbps=1048576"}},
		{name: "a link", class: `["disk:/dev/disk/by-id/*SSD* riops=50", "disk:/dev/mapper/* wiops=60"]`, want: []string{"sdb riops=50", "dm-0 wiops=60"}},
		{name: "the first one holds", class: `["disk:sdb rbps=3Mi", "disk:sd* rbps=2Mi wbps=2Mi"]`, want: []string{"sda rbps=2097152 wbps=2097152", "sdb rbps=3145728 wbps=2097152", "sdc rbps=2097152 wbps=2097152"}},
		{name: "and not the lowest", class: `["disk:sd* rbps=2Mi", "disk:sdb rbps=1Mi"]`, want: []string{"sda rbps=2097152", "sdb rbps=2097152", "sdc rbps=2097152"}},
		{name: "over *", class: `["* rbps=1Mi", "disk:sda rbps=2Mi", "disk:dm-0 rbps=max"]`, want: []string{"sda rbps=2097152", "sdc rbps=1048576", "dm-0 rbps=max", "nvme0n1 rbps=1048576"}},
		{name: "under rootfs and paths", class: `["rootfs rbps=2Mi", "disk:* rbps=1Mi", "/data rbps=3Mi"]`, want: []string{"sda rbps=2097152", "sdb rbps=1048576", "sdc rbps=1048576", "dm-0 rbps=3145728", "nvme0n1 rbps=1048576"}},
		{name: "none", class: `["disk:vd* rbps=1Mi"]`, skipped: []string{"disk:vd*: no disk of the container has such a name"}},
		{name: "an injected file", class: `["disk:loop* rbps=1Mi"]`, skipped: []string{"disk:loop*: no disk of the container has such a name"}},
	} {
		p := parsed(t, "classes: {a: {limits: "+tt.class+"}}\nrules: [{name: all, class: a}]")
		pod := p.ForPod(&PodFacts{}, annotation.Parse(nil))
		d, err := pod.Container(stacked())
		if err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		if diff := cmp.Diff(tt.want, limits(d)); diff != "" {
			t.Errorf("%s: -want +got:\n%s", tt.name, diff)
		}
		var skipped []string
		for _, s := range d.Skipped {
			if s.What != "/tmp" {
				skipped = append(skipped, s.What+": "+s.Reason)
			}
		}
		if diff := cmp.Diff(tt.skipped, skipped); diff != "" || len(d.WarningKinds) > 0 {
			t.Errorf("%s: %v, skipped, -want +got:\n%s", tt.name, d.WarningKinds, diff)
		}
		if targets := pod.Targets(); !pod.StarOf("db") || !targets.Disks && tt.name != "" {
			t.Errorf("%s: not all disks are searched for: %+v", tt.name, targets)
		}
	}
}

// TestUnknownName verifies that a disk that cannot be found is an internal error, once, and that a disk
// that stands for an unknown one has no name.
func TestUnknownName(t *testing.T) {
	pod := parsed(t, `classes: {a: {limits: ["disk:* wbps=1Mi"]}}`+"\nrules: [{name: all, class: a}]").ForPod(&PodFacts{}, nil)
	d, err := pod.Container(Container{Name: "db", Rootfs: unknown(), Mounts: []Mount{mount("/a", unknown()), mount("/b", on(sdb))}})
	if diff := cmp.Diff([]string{"internal: rootfs cannot be limited now: this node failed to look where it is stored"}, errorsOf(d)); err == nil || diff != "" {
		t.Errorf("%v, %s", err, diff)
	}
	if diff := cmp.Diff([]string{"sdb wbps=1048576"}, limits(d)); diff != "" {
		t.Error(diff)
	}
	d, err = pod.Container(Container{Name: "db", Rootfs: on(blkio.UnknownDisk(0, "disk of the layers"))})
	if err != nil || len(d.Settings) > 0 || len(d.Skipped) != 1 || d.Skipped[0].Reason != "only a node shows the names of the disks" {
		t.Errorf("%v, %+v", err, d)
	}
}

// TestDiskBounds verifies that a class that limits only some disks does not meet a bound for all of them, and that
// bounds and budgets are for all disks.
func TestDiskBounds(t *testing.T) {
	p := parsed(t, `bounds: {max: ["* wbps=5Mi"]}`+"\n"+`classes: {a: {limits: ["disk:* wbps=1Mi"]}, b: {limits: ["* wbps=5Mi", "disk:sda wbps=6Mi"]}, c: {limits: ["* wbps=5Mi", "disk:sda wbps=1Mi"]}}`)
	for class, want := range map[string]string{"a": "the class does not limit wbps of *", "b": "wbps=6Mi is above the bound", "c": ""} {
		_, err := p.of(annotation.Parse(map[string]string{"class.blkio.noderesource.dev/containers": class})).Container(stacked())
		if e := asError(t, err); (e == nil) != (want == "") || e != nil && e.Cause != want {
			t.Errorf("%s: %v", class, err)
		}
	}
	for _, text := range []string{`bounds: {max: ["disk:sda wbps=5Mi"]}`, `bounds: {min: ["disk:sda wbps=5Mi"]}`, `budgets: [{namespaces: [a], limits: ["disk:sda wbps=5Mi"]}]`, `classes: {a: {limits: ["disk:sda wbps=1"]}}`, `classes: {a: {limits: ["disk:/data wbps=1Mi"]}}`} {
		if _, err := ParseFile([]byte(fileHead + text)); err == nil {
			t.Errorf("%s: no error", text)
		}
	}
}
