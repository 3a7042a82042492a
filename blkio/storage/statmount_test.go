package storage

import (
	"encoding/binary"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// statText is a text of struct statmount: its mask, the offset of its field, and its content.
type statText struct {
	mask uint64
	at   int
	text string
}

// statmountOf returns the output of statmount(2) for mount 7 on 3, of device 8:17, in peer group 5 and a slave
// of 6.
func statmountOf(texts ...statText) mountStatus {
	s := make(mountStatus, statmountSize)
	for at, n := range map[int]uint32{atMajor: 8, atMinor: 17, atOldID: 7, atOldParent: 3} {
		binary.NativeEndian.PutUint32(s[at:], n)
	}
	binary.NativeEndian.PutUint64(s[atPeers:], 5)
	binary.NativeEndian.PutUint64(s[atMaster:], 6)
	mask := uint64(statSuperblock | statMount)
	for _, t := range texts {
		mask |= t.mask
		binary.NativeEndian.PutUint32(s[t.at:], uint32(len(s)-statmountSize))
		s = append(append(s, t.text...), 0)
	}
	binary.NativeEndian.PutUint64(s[atMask:], mask)
	binary.NativeEndian.PutUint32(s[atSize:], uint32(len(s)))
	return s
}

func statPoint(path string) statText     { return statText{statMountpoint, atMountpoint, path} }
func statFSType(name string) statText    { return statText{statType, atType, name} }
func statOption(options string) statText { return statText{statOptions, atOptions, options} }

// TestStatmount compares mounts with those of the lines that mountinfo has for them.
func TestStatmount(t *testing.T) {
	root, source := statText{statRoot, atRoot, "/sub"}, statText{statSource, atSource, "/dev/sdb1"}
	for name, tt := range map[string]struct {
		status mountStatus
		line   string
	}{
		"a volume": {
			statmountOf(root, statPoint("/srv/a b"), statFSType("ext4"), source, statOption("rw,data=journal,nodelalloc")),
			`7 3 8:17 /sub /srv/a\040b rw shared:5 master:6 - ext4 /dev/sdb1 rw,data=journal,nodelalloc`,
		},
		"FUSE": {
			statmountOf(root, statPoint("/srv"), statFSType("fuse"), statText{statSubtype, atSubtype, "sshfs"}, source, statOption("rw")),
			"7 3 8:17 /sub /srv rw shared:5 master:6 - fuse.sshfs /dev/sdb1 rw",
		},
		"an overlay": {
			statmountOf(root, statPoint("/run/c/rootfs"), statFSType("overlay"), source, statOption(`rw,lowerdir=/l1:/l2,upperdir=/u,workdir=/w`)),
			"7 3 8:17 /sub /run/c/rootfs rw shared:5 master:6 - overlay /dev/sdb1 rw,lowerdir=/l1:/l2,upperdir=/u,workdir=/w",
		},
		"before Linux 6.13": { // without the source and the subtype
			statmountOf(root, statPoint("/"), statFSType("xfs"), statOption("rw")),
			"7 3 8:17 /sub / rw shared:5 master:6 - xfs  rw",
		},
		"a mountpoint below a removed directory": {statmountOf(root, statPoint("a"), statFSType("xfs"), statOption("rw")), ""},
		"out of reach":                           {statmountOf(root, statFSType("xfs"), source, statOption("rw")), ""},
		"an empty mountpoint":                    {statmountOf(root, statPoint(""), statFSType("xfs"), source, statOption("rw")), ""},
	} {
		table, err := ParseMountTable(strings.NewReader(tt.line + "\n"))
		if err != nil {
			t.Fatal(err)
		}
		got := tt.status.mount()
		if tt.line == "" {
			if got != nil {
				t.Errorf("%s: %+v", name, got)
			}
			continue
		}
		if diff := cmp.Diff(table.All()[0], got); diff != "" {
			t.Errorf("%s: -mountinfo +statmount:\n%s", name, diff)
		}
	}
}

// TestStatmountIncomplete verifies that a mount whose filesystem or path cannot be read is in the way of
// others, and is not left out.
func TestStatmountIncomplete(t *testing.T) {
	long := "/" + strings.Repeat("d/", maxMountPath)
	outside := statmountOf(statPoint("/srv"), statFSType("xfs"))
	binary.NativeEndian.PutUint32(outside[atType:], 1<<31)
	for name, tt := range map[string]struct {
		status             mountStatus
		point, fstype, why string
	}{
		"no filesystem":        {statmountOf(statPoint("/srv")), "/srv", "", badLine},
		"a name out of bounds": {outside, "/srv", "", ""},
		"not clean":            {statmountOf(statPoint("/srv//a/../b/"), statFSType("xfs")), "/srv/b", "xfs", ""},
		"a long path":          {statmountOf(statPoint(long), statFSType("xfs")), parentDir(long[:maxMountPath]), "xfs", longMountpoint},
	} {
		got := tt.status.mount()
		if got == nil {
			t.Errorf("%s: no mount", name)
			continue
		}
		if got.Mountpoint != tt.point || got.FSType != tt.fstype || got.Unreadable != tt.why || got.Dev != (blkio.Dev{Major: 8, Minor: 17}) {
			t.Errorf("%s: %.80q of %q, %s, %q", name, got.Mountpoint, got.FSType, got.Dev, got.Unreadable)
		}
	}
	// A name that no filesystem has must not hide half of the node.
	if got := statmountOf(statPoint("/" + strings.Repeat("d", 2*maxMountPath))).mount(); got != nil {
		t.Errorf("%.80q", got.Mountpoint)
	}
	if got := statmountOf(statText{statRoot, atRoot, long}, statPoint("/srv"), statFSType("xfs")).mount(); got == nil || got.Root != "" {
		t.Errorf("a long root: %+v", got)
	}
}
