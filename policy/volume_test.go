package policy

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

func TestVolume(t *testing.T) {
	// A subPath hides the plugin of its volume.
	sub := func(volume string, m Mount) Mount { m.Volume = volume; return m }
	data := of("data", "csi", host()) // sdb and sdc are mounted below it
	const two = `ambiguous volume name "data": a volume of the pod and a PersistentVolume have it (write the path of the mount in the container)`
	tests := []struct {
		name   string
		mounts []Mount
		db     string // annotations
		each   string
		want   []string
		err    string // of db's first entry
	}{
		{name: "the mount itself, as by its path", mounts: []Mount{data}, db: "@data wbps=1Mi", want: []string{"sda wbps=1048576"}},
		{name: "each mount of it", mounts: []Mount{data, sub("data", mount("/sub", on(sdb))), mount("/other", on(sdc))}, db: "@data wbps=1Mi", want: []string{"sda wbps=1048576", "sdb wbps=1048576"}},
		{name: "read-only, as by its path", mounts: []Mount{readOnly(data)}, db: "@data wbps=1Mi", want: []string{"sda wbps=1048576"}},
		{name: "beats rootfs and star", mounts: []Mount{of("data", "csi", mount("/data", on(sda)))}, db: "* wbps=1Mi; @data wbps=3Mi; rootfs wbps=2Mi rbps=2Mi", want: []string{"sda rbps=2097152 wbps=3145728"}},
		{name: "in any order", mounts: []Mount{of("data", "csi", mount("/data", on(sda)))}, db: "@data wbps=3Mi; * wbps=1Mi", want: []string{"sda wbps=3145728"}},
		{name: "one value with a path", mounts: []Mount{data}, db: "@data wbps=1Mi; /host wbps=1024Ki rbps=1Mi", want: []string{"sda rbps=1048576 wbps=1048576"}},
		{name: "a path below it is another disk", mounts: []Mount{data}, db: "@data wbps=1Mi; /host/ext4 wbps=2Mi", want: []string{"sda wbps=1048576", "sdb wbps=2097152"}},
		{name: "container beats containers", mounts: []Mount{data}, db: "@data wbps=1Mi", each: "/host wbps=2Mi rbps=2Mi", want: []string{"sda rbps=2097152 wbps=1048576"}},
		{name: "containers skips what is not there", mounts: []Mount{data}, each: "@nope wbps=1Mi; @data wbps=1Mi", want: []string{"sda wbps=1048576"}},
		{name: "max of memory", mounts: []Mount{of("data", "secret", mount("/s", tmpfs()))}, db: "@data wbps=max"},
		{name: "no name is no volume", mounts: []Mount{mount("/data", on(sda))}, db: "@data wbps=1Mi", err: `volume "data" is on no mount of the container (` + hintVolume + ")"},
		{name: "two plugins", mounts: []Mount{data, sub("data", mount("/sub", on(sdb))), of("data", "empty-dir", mount("/e", on(sda)))}, db: "@data wbps=1Mi", err: two},
		{name: "two others", mounts: []Mount{data, of("x", "csi", mount("/x", on(sdb))), of("x", "empty-dir", mount("/e", on(sdb)))}, db: "@data wbps=1Mi", want: []string{"sda wbps=1048576"}},
	}
	for _, tt := range tests {
		annotations := map[string]string{keyDB: tt.db, keyEach: tt.each}
		for k, v := range annotations {
			if v == "" {
				delete(annotations, k)
			}
		}
		d, err := Default().ForPod(&PodFacts{Volumes: NewVolumes(nil)}, annotation.Parse(annotations)).Container(Container{Name: "db", Rootfs: on(sda), Mounts: tt.mounts})
		if tt.err == "" && err != nil || tt.err != "" && (err == nil || err.Error() != "nri-blkio: "+keyDB+`: entry 1 "`+tt.db+`": `+tt.err) {
			t.Errorf("%s:\n got %v\nwant %s", tt.name, err, tt.err)
		}
		if err != nil && asError(t, err).Kind() != annotation.Invalid {
			t.Errorf("%s: %v is %v", tt.name, err, asError(t, err).Kind())
		}
		if diff := cmp.Diff(tt.want, limits(d)); diff != "" {
			t.Errorf("%s: -want +got:\n%s", tt.name, diff)
		}
	}
}

// TestVolumeIsNamed verifies that sources and skipped targets have the name of the volume, not a path.
func TestVolumeIsNamed(t *testing.T) {
	c := Container{Name: "db", Rootfs: on(sda), Mounts: []Mount{of("data", "csi", mount("/data", on(sdb))), of("mem", "empty-dir", mount("/mem", tmpfs()))}}
	d, err := Default().ForPod(&PodFacts{Volumes: NewVolumes(nil)}, annotation.Parse(map[string]string{keyDB: "@data wbps=1Mi; @mem wbps=max", keyEach: "@nope rbps=1Mi"})).Container(c)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(from(keyDB, 1, "@data"), d.Settings[0].Source); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	want := []Skipped{
		{from(keyDB, 2, "@mem"), "@mem", "tmpfs is memory, not a disk"},
		{from(keyEach, 1, "@nope"), "@nope", "the container has no mount of this volume"},
	}
	if diff := cmp.Diff(want, d.Skipped); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestVolumeOfPod verifies that a pod-total applies to the pod's volume, in any of its containers.
func TestVolumeOfPod(t *testing.T) {
	a := Container{Name: "a", Rootfs: on(sda), Mounts: []Mount{of("data", "csi", mount("/a", on(sdb)))}}
	b := Container{Name: "b", Rootfs: on(sda), Mounts: []Mount{of("data", "csi", mount("/b", on(sdb)))}}
	none := Container{Name: "none", Rootfs: on(sda)}
	memory := Container{Name: "memory", Mounts: []Mount{of("data", "csi", mount("/m", tmpfs()))}}
	other := Container{Name: "other", Mounts: []Mount{of("data", "empty-dir", mount("/m", on(sdc)))}}
	const value = "@data wbps=1Mi"
	tests := []struct {
		name      string
		cs        []Container
		want      []string
		err       string
		unmatched bool
	}{
		{name: "none yet", unmatched: true},
		{name: "not there", cs: []Container{none}, unmatched: true},
		{name: "one of them", cs: []Container{none, a}, want: []string{"sdb wbps=1048576"}},
		{name: "two share it", cs: []Container{b, none, a}, want: []string{"sdb wbps=1048576"}},
		{name: "no disk", cs: []Container{memory}, err: `"@data" of container "memory" cannot be limited: tmpfs is memory, not a disk (remove the entry, or use a volume on a local disk)`},
		{
			name: "two volumes, each in another container", cs: []Container{a, other},
			err: `ambiguous volume name "data": a volume of the pod and a PersistentVolume have it (write the path of the mount in the container)`,
		},
	}
	for _, tt := range tests {
		r := annotation.Parse(map[string]string{keyTotal: value})
		d, err := Default().of(r).Total(tt.cs)
		if tt.err == "" && err != nil || tt.err != "" && (err == nil || err.Error() != "nri-blkio: "+keyTotal+`: entry 1 "`+value+`": `+tt.err) {
			t.Errorf("%s:\n got %v\nwant %s", tt.name, err, tt.err)
		}
		if diff := cmp.Diff(tt.want, limits(d)); diff != "" {
			t.Errorf("%s: -want +got:\n%s", tt.name, diff)
		}
		var unmatched []string
		if tt.unmatched {
			unmatched = []string{keyTotal + `: entry 1: no container of the pod has a mount of volume "data"`}
		}
		if diff := cmp.Diff(unmatched, Default().of(r).Unmatched(tt.cs)); diff != "" {
			t.Errorf("%s: unmatched: -want +got:\n%s", tt.name, diff)
		}
	}
}

// TestVolumeLineIsBounded verifies that the line has the advice, however long the names in it are.
func TestVolumeLineIsBounded(t *testing.T) {
	name := strings.Repeat("a", 63)
	key := "limits.blkio.noderesource.dev/container." + name
	_, err := Default().of(annotation.Parse(map[string]string{key: "@" + name + " wbps=1Mi"})).Container(Container{Name: name})
	if err == nil {
		t.Fatal("no error")
	}
	checkLine(t, err.Error())
	if !strings.Contains(err.Error(), "("+hintVolume+")") {
		t.Errorf("got %s", err)
	}
}
