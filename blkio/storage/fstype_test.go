package storage

import (
	"strings"
	"testing"

	"github.com/nri-blkio/nri-blkio/blkio"
)

func TestFilesystemTypes(t *testing.T) {
	buffered := blkio.Warning{Kind: blkio.NoCgroupWriteback, Text: "direct I/O only"}
	tests := []struct {
		mount   Mount
		reason  string        // a part of it, "" for none
		warning blkio.Warning // the text a part of it
		local   bool
	}{
		{mount: Mount{FSType: "ext4", Dev: blkio.Dev{Major: 8, Minor: 1}}, local: true},
		{mount: Mount{FSType: "ext4", Dev: blkio.Dev{Major: 8, Minor: 1}, DataJournal: true}, warning: buffered, local: true},
		{mount: Mount{FSType: "ext4", Dev: blkio.Dev{Major: 8, Minor: 1}, SlowFsync: true}, warning: blkio.Warning{Kind: blkio.StallsFsync, Text: "an fsync of others waits"}, local: true},
		{mount: Mount{FSType: "ext3", Dev: blkio.Dev{Major: 8, Minor: 1}}, local: true},
		{mount: Mount{FSType: "xfs", Dev: blkio.Dev{Major: 253, Minor: 0}}, local: true},
		{mount: Mount{FSType: "f2fs", Dev: blkio.Dev{Major: 179, Minor: 2}}, local: true},
		{mount: Mount{FSType: "btrfs", Dev: blkio.Dev{Major: 0, Minor: 45}}, local: true},
		{mount: Mount{FSType: "bcachefs", Dev: blkio.Dev{Major: 0, Minor: 45}}, warning: buffered, local: true},
		{mount: Mount{FSType: "vfat", Dev: blkio.Dev{Major: 8, Minor: 15}}, warning: buffered, local: true},
		{mount: Mount{FSType: "exfat", Dev: blkio.Dev{Major: 8, Minor: 15}}, warning: buffered, local: true},
		{mount: Mount{FSType: "iso9660", Dev: blkio.Dev{Major: 11, Minor: 0}}, local: true},
		{mount: Mount{FSType: "squashfs", Dev: blkio.Dev{Major: 7, Minor: 3}}, local: true},
		{mount: Mount{FSType: "tmpfs", Dev: blkio.Dev{Major: 0, Minor: 24}}, reason: "memory", local: true},
		{mount: Mount{FSType: "overlay", Dev: blkio.Dev{Major: 0, Minor: 60}}, local: true},
		{mount: Mount{FSType: "zfs", Dev: blkio.Dev{Major: 0, Minor: 61}}, reason: "pool", local: true},
		{mount: Mount{FSType: "nfs", Dev: blkio.Dev{Major: 0, Minor: 62}}, reason: "network"},
		{mount: Mount{FSType: "nfs4", Dev: blkio.Dev{Major: 0, Minor: 62}}, reason: "network"},
		{mount: Mount{FSType: "cifs", Dev: blkio.Dev{Major: 0, Minor: 63}}, reason: "network"},
		{mount: Mount{FSType: "ceph", Dev: blkio.Dev{Major: 0, Minor: 64}}, reason: "network"},
		{mount: Mount{FSType: "fuse", Dev: blkio.Dev{Major: 0, Minor: 65}}, reason: "served by a process"},
		{mount: Mount{FSType: "fuse.s3fs", Dev: blkio.Dev{Major: 0, Minor: 65}}, reason: "served by a process"},
		{mount: Mount{FSType: "fuseblk", Dev: blkio.Dev{Major: 8, Minor: 3}}, reason: "served by a process"},
		{mount: Mount{FSType: "virtiofs", Dev: blkio.Dev{Major: 0, Minor: 66}}, reason: "virtual machine"},
		{mount: Mount{FSType: "9p", Dev: blkio.Dev{Major: 0, Minor: 67}}, reason: "virtual machine"},
		{mount: Mount{FSType: "autofs", Dev: blkio.Dev{Major: 0, Minor: 68}}, reason: "nothing is mounted"},
		{mount: Mount{FSType: "proc", Dev: blkio.Dev{Major: 0, Minor: 21}}, reason: "kernel"},
		{mount: Mount{FSType: "cgroup2", Dev: blkio.Dev{Major: 0, Minor: 26}}, reason: "kernel"},
		{mount: Mount{FSType: "fuseful", Dev: blkio.Dev{Major: 0, Minor: 69}}, warning: buffered},
	}
	for _, tt := range tests {
		reason := noDiskReason(tt.mount.FSType)
		if !contains(reason, tt.reason) {
			t.Errorf("%s: reason %q, want %q", tt.mount.FSType, reason, tt.reason)
		}
		var warning blkio.Warning
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
