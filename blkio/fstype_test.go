package blkio

import (
	"strings"
	"testing"
)

func TestFilesystemTypes(t *testing.T) {
	buffered := Warning{NoCgroupWriteback, "direct I/O only"}
	tests := []struct {
		mount   Mount
		reason  string  // a part of it, "" for none
		warning Warning // the text a part of it
		local   bool
	}{
		{mount: Mount{FSType: "ext4", Dev: Dev{8, 1}}, local: true},
		{mount: Mount{FSType: "ext4", Dev: Dev{8, 1}, DataJournal: true}, warning: buffered, local: true},
		{mount: Mount{FSType: "ext4", Dev: Dev{8, 1}, SlowFsync: true}, warning: Warning{StallsFsync, "an fsync of others waits"}, local: true},
		{mount: Mount{FSType: "ext3", Dev: Dev{8, 1}}, local: true},
		{mount: Mount{FSType: "xfs", Dev: Dev{253, 0}}, local: true},
		{mount: Mount{FSType: "f2fs", Dev: Dev{179, 2}}, local: true},
		{mount: Mount{FSType: "btrfs", Dev: Dev{0, 45}}, local: true},
		{mount: Mount{FSType: "bcachefs", Dev: Dev{0, 45}}, warning: buffered, local: true},
		{mount: Mount{FSType: "vfat", Dev: Dev{8, 15}}, warning: buffered, local: true},
		{mount: Mount{FSType: "exfat", Dev: Dev{8, 15}}, warning: buffered, local: true},
		{mount: Mount{FSType: "iso9660", Dev: Dev{11, 0}}, local: true},
		{mount: Mount{FSType: "squashfs", Dev: Dev{7, 3}}, local: true},
		{mount: Mount{FSType: "tmpfs", Dev: Dev{0, 24}}, reason: "memory", local: true},
		{mount: Mount{FSType: "overlay", Dev: Dev{0, 60}}, local: true},
		{mount: Mount{FSType: "zfs", Dev: Dev{0, 61}}, reason: "pool", local: true},
		{mount: Mount{FSType: "nfs", Dev: Dev{0, 62}}, reason: "network"},
		{mount: Mount{FSType: "nfs4", Dev: Dev{0, 62}}, reason: "network"},
		{mount: Mount{FSType: "cifs", Dev: Dev{0, 63}}, reason: "network"},
		{mount: Mount{FSType: "ceph", Dev: Dev{0, 64}}, reason: "network"},
		{mount: Mount{FSType: "fuse", Dev: Dev{0, 65}}, reason: "served by a process"},
		{mount: Mount{FSType: "fuse.s3fs", Dev: Dev{0, 65}}, reason: "served by a process"},
		{mount: Mount{FSType: "fuseblk", Dev: Dev{8, 3}}, reason: "served by a process"},
		{mount: Mount{FSType: "virtiofs", Dev: Dev{0, 66}}, reason: "virtual machine"},
		{mount: Mount{FSType: "9p", Dev: Dev{0, 67}}, reason: "virtual machine"},
		{mount: Mount{FSType: "autofs", Dev: Dev{0, 68}}, reason: "nothing is mounted"},
		{mount: Mount{FSType: "proc", Dev: Dev{0, 21}}, reason: "kernel"},
		{mount: Mount{FSType: "cgroup2", Dev: Dev{0, 26}}, reason: "kernel"},
		{mount: Mount{FSType: "fuseful", Dev: Dev{0, 69}}, warning: buffered},
	}
	for _, tt := range tests {
		reason := noDiskReason(tt.mount.FSType)
		if !contains(reason, tt.reason) {
			t.Errorf("%s: reason %q, want %q", tt.mount.FSType, reason, tt.reason)
		}
		var warning Warning
		if w := writebackWarning(&tt.mount); w != nil {
			warning = *w
		}
		if reason == "" && (warning.Kind != tt.warning.Kind || !contains(warning.Text, tt.warning.Text)) {
			t.Errorf("%s: warning %q, want %q", tt.mount.FSType, warning, tt.warning)
		}
		if got := isLocal(&tt.mount); got != tt.local {
			t.Errorf("%s: local is %t", tt.mount.FSType, got)
		}
	}
}

// contains is also that both are empty or neither is.
func contains(s, part string) bool {
	return strings.Contains(s, part) && (s == "") == (part == "")
}
