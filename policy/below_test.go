package policy

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// host is a volume on sda with sdb mounted below it, sdc below that and a
// tmpfs beside.
func host() Mount {
	m := mount("/host", on(sda))
	m.Below = []Below{
		{Path: "/host/ext4", Backing: new(on(sdb))},
		{Path: "/host/ext4/a/b", Backing: new(on(sdc))},
		{Path: "/host/run", Backing: new(tmpfs())},
	}
	return m
}

func TestBelow(t *testing.T) {
	const noDisk = "nri-blkio: " + keyDB + `: entry 1 "/host/run/x wbps=1Mi": "/host/run/x" cannot be limited: tmpfs is memory, not a disk (remove the entry, or use a volume on a local disk)`
	const noWrite = "nri-blkio: " + keyDB + `: entry 1 "* wbps=1Mi": no disk to limit wbps on: rootfs: tmpfs is memory, not a disk (remove the entry, or use a volume on a local disk)`
	tests := []struct {
		name   string
		mounts []Mount
		value  string
		want   []string
		err    string
	}{
		{"the mount itself", []Mount{host()}, "/host wbps=1Mi", []string{"sda wbps=1048576"}, ""},
		{"a directory of it", []Mount{host()}, "/host/ext3 wbps=1Mi", []string{"sda wbps=1048576"}, ""},
		{"the same only as text", []Mount{host()}, "/host/ext42 wbps=1Mi", []string{"sda wbps=1048576"}, ""},
		{"a mount below", []Mount{host()}, "/host/ext4/ wbps=1Mi", []string{"sdb wbps=1048576"}, ""},
		{"inside it", []Mount{host()}, "/host/ext4/a wbps=1Mi", []string{"sdb wbps=1048576"}, ""},
		{"the longest", []Mount{host()}, "/host/ext4/a/b/c wbps=1Mi", []string{"sdc wbps=1048576"}, ""},
		{"each its own", []Mount{host()}, "/host wbps=1Mi; /host/ext4 wbps=2Mi; /host/ext4/a/b wbps=3Mi", []string{"sda wbps=1048576", "sdb wbps=2097152", "sdc wbps=3145728"}, ""},
		{"no disk", []Mount{host()}, "/host/run/x wbps=1Mi", nil, noDisk},
		{"a volume in the volume hides it", []Mount{host(), mount("/host/ext4", on(sda))}, "/host/ext4/a/b wbps=1Mi", []string{"sda wbps=1048576"}, ""},
		{"whichever comes first", []Mount{mount("/host/ext4/a", on(sda)), host()}, "/host/ext4/a/b wbps=1Mi", []string{"sda wbps=1048576"}, ""},

		{"star", []Mount{host()}, "* wbps=1Mi", []string{"sda wbps=1048576", "sdb wbps=1048576", "sdc wbps=1048576"}, ""},
		{"star, a path beats it", []Mount{host()}, "/host/ext4 wbps=2Mi; * wbps=1Mi", []string{"sda wbps=1048576", "sdb wbps=2097152", "sdc wbps=1048576"}, ""},
		{"star, read-only: not the mounts below", []Mount{readOnly(host())}, "* wbps=1Mi", []string{"sdb wbps=1048576", "sdc wbps=1048576"}, ""},
		{"star, read-only, of reads", []Mount{readOnly(host())}, "* rbps=1Mi", []string{"sda rbps=1048576", "sdb rbps=1048576", "sdc rbps=1048576"}, ""},
		{"star, injected", []Mount{injected(host())}, "* wbps=1Mi", nil, noWrite},
		{"injected, by its path", []Mount{injected(host())}, "/host/ext4 wbps=1Mi", []string{"sdb wbps=1048576"}, ""},
	}
	for _, tt := range tests {
		c := Container{Name: "db", Rootfs: tmpfs(), Mounts: tt.mounts}
		d, err := Default().of(annotation.Parse(map[string]string{keyDB: tt.value})).Container(c)
		if tt.err == "" && err != nil || tt.err != "" && (err == nil || err.Error() != tt.err) {
			t.Errorf("%s:\n got %v\nwant %s", tt.name, err, tt.err)
		}
		if diff := cmp.Diff(tt.want, limits(d)); diff != "" {
			t.Errorf("%s: -want +got:\n%s", tt.name, diff)
		}
	}

	// A disk that "*" cannot limit is listed by its own path.
	d, err := Default().of(annotation.Parse(map[string]string{keyDB: "* wbps=1Mi"})).Container(Container{Name: "db", Rootfs: on(sda), Mounts: []Mount{host()}})
	if want := []Skipped{{from(keyDB, 1, "*"), "/host/run", "tmpfs is memory, not a disk"}}; err != nil || !cmp.Equal(want, d.Skipped) {
		t.Errorf("%v, skipped %v", err, d.Skipped)
	}
	// The same for a pod as a whole.
	d, err = Default().of(annotation.Parse(map[string]string{keyTotal: "/host/ext4 wbps=1Mi"})).Total([]Container{{Name: "db", Mounts: []Mount{host()}}})
	if diff := cmp.Diff([]string{"sdb wbps=1048576"}, limits(d)); err != nil || diff != "" {
		t.Errorf("pod-total: %v, -want +got:\n%s", err, diff)
	}
}
