package storage

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestStack(t *testing.T) {
	f := newFakeSysfs()
	f.add(virtual+"dm-0", "253:0", "size=4096", "dm/name=vg-lv", "dm/uuid=LVM-abc")
	f.add(virtual+"dm-1", "253:1", "size=4096", "dm/name=luks-home", "dm/uuid=CRYPT-LUKS2-abc")
	f.add(virtual+"dm-2", "253:2", "size=4096", "dm/name=mpatha", "dm/uuid=mpath-360")
	f.add(virtual+"dm-3", "253:3", "size=4096", "dm/name=odd", "dm/uuid=")
	f.add(virtual+"md0", "9:0", "size=4096", "md/level=raid10")
	f.add(virtual+"md1", "9:1", "size=4096", "md/level=linear")
	got, err := NewSysfs(f).Stack()
	checkError(t, err, "")
	var lines []string
	for _, d := range got {
		line := []string{d.Dev.String(), d.Name, string(d.Kind)}
		for _, p := range d.Parents {
			line = append(line, p.Name)
		}
		lines = append(lines, strings.Join(line, " "))
		if d.Size == 0 {
			t.Errorf("%s has no size", d.Name)
		}
	}
	want := []string{
		"7:0 loop0 loop",
		"8:0 sda disk", "8:1 sda1 partition sda", "8:2 sda2 partition sda",
		"8:16 sdb disk", "8:17 sdb1 partition sdb",
		"8:32 sdc disk", "8:48 sdd disk",
		"9:0 md0 raid10", "9:1 md1 md",
		"104:0 cciss!c0d0 disk",
		"253:0 dm-0 lvm sdb1 sdd", "253:1 dm-1 crypt dm-0", "253:2 dm-2 multipath", "253:3 dm-3 dm",
		"259:1 nvme0n1 disk", "259:300 nvme0n1p1 partition nvme0n1",
	}
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Error(diff)
	}
}

func TestFilesystems(t *testing.T) {
	n := newFakeNode(t, nodeMounts)
	var got []string
	for _, f := range n.Filesystems() {
		line := []string{f.Dev.String(), f.Type}
		for _, d := range f.Devices {
			line = append(line, d.Name)
		}
		for _, m := range f.Mounts {
			line = append(line, m.Mountpoint)
		}
		if f.Warning != nil {
			line = append(line, string(f.Warning.Kind))
		}
		if f.Err != nil {
			line = append(line, f.Err.Error())
		}
		got = append(got, strings.Join(line, " "))
	}
	want := []string{
		"8:1 ext4 sda1 / /var/lib/kubelet/pods/1/volumes/bound",
		"8:17 xfs sdb1 /var/lib/containerd",
		"253:0 ext4 dm-0 /srv/lv no_cgroup_writeback",
		"0:45 btrfs sda2 sdc /srv/btrfs",
		"259:300 vfat nvme0n1p1 /srv/nvme disk no_cgroup_writeback",
		"8:32 ext4 sdc /srv/nfs/local",
		"0:46 bcachefs sda sdd /srv/many no_cgroup_writeback",
		"65:16 ext4 /srv/lost block device 65:16: no such disk",
		"0:53 btrfs dm-1 /srv/btrfs2",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestLocate(t *testing.T) {
	n := newFakeNode(t, nodeMounts)
	n.mkdir(t, "/srv/lv/kubelet")
	n.symlink(t, "/srv/lv/kubelet", "/var/lib/kubelet")
	for in, want := range map[string]struct {
		path  string
		local bool
	}{
		"/var/lib/kubelet/pods": {"/srv/lv/kubelet/pods", true},
		"/srv/nfs/x":            {"/srv/nfs/x", false},
		"/srv/nfs/local/x":      {"", false}, // the way there could hang
		"/srv/odd":              {"/srv/odd", false},
		"x":                     {"", false},
	} {
		if p, local := n.Locate(t.Context(), in); p != want.path || local != want.local {
			t.Errorf("Locate(%q) is %q, %v, want %v", in, p, local, want)
		}
	}
}

const swapsHeader = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n"

func TestParseSwaps(t *testing.T) {
	got, err := ParseSwaps(strings.NewReader(swapsHeader +
		"/dev/vda5                               partition\t1000444\t\t12\t\t-2\n" +
		`/my\040swap\012file\134                      file	8	0	-3` + "\n"))
	checkError(t, err, "")
	want := []Swap{
		{Name: "/dev/vda5", Size: 1000444 << 10, Used: 12 << 10},
		{Name: "/my swap\nfile\\", File: true, Size: 8 << 10},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for in, want := range map[string]string{
		"":                          "",
		swapsHeader:                 "",
		swapsHeader + "/dev/a x 1":  "parse swaps, line 2: 3 fields",
		swapsHeader + "/a x y 1 -2": `parse swaps, line 2: strconv.ParseUint: parsing "y": invalid syntax`,
	} {
		_, err := ParseSwaps(strings.NewReader(in))
		checkError(t, err, want)
	}
}

func FuzzParseSwaps(f *testing.F) {
	f.Add(swapsHeader + `/my\040swap\ file 8 0 -3` + "\n")
	f.Fuzz(func(t *testing.T, in string) {
		got, err := ParseSwaps(strings.NewReader(in))
		if err == nil && len(got) > strings.Count(in, "\n") {
			t.Errorf("%d swaps in %d lines", len(got), strings.Count(in, "\n"))
		}
	})
}
