package storage

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio"
)

const procCgroup = "kubepods.slice/kubepods-pod1.slice/cri-containerd-5e0f.scope"

// setProcess makes /proc/123 of a process in procCgroup, as a reader in a cgroup
// namespace of its own sees it.
func (n *fakeNode) setProcess(t testing.TB, mountinfo string) {
	t.Helper()
	n.cfg.Proc = t.TempDir()
	dir := filepath.Join(n.cfg.Proc, "123")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"cgroup":    "9:name=systemd:/\n0::/../../kubepods-pod1.slice/" + filepath.Base(procCgroup) + "/container\n",
		"mountinfo": mountinfo,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// TestProcessMounts verifies that each mount of a container that may be on a disk is in the result, also hidden
// ones, with the disks of its filesystem.
func TestProcessMounts(t *testing.T) {
	n := newFakeNode(t, nodeMounts)
	n.mkdir(t, "/u") // the layers of the overlay
	n.mkdir(t, "/l")
	n.mkdir(t, "/var/lib/containerd/u")
	long := strings.Repeat("/"+strings.Repeat("d", 200), 300) // 60 KiB
	tests := []struct {
		name, lines string
		want        []string
	}{
		{name: "of a new filesystem", lines: "501 500 0:61 / /proc rw - proc proc rw\n502 500 0:62 / /dev rw - tmpfs tmpfs rw\n503 500 0:63 / /n rw - nfs4 h:/x rw\n"},
		{name: "disk", lines: "501 500 8:16 /v /data rw,relatime - xfs /dev/sdb rw\n", want: []string{"/data rw sdb"}},
		{name: "read-only", lines: "501 500 8:16 /v /data ro,relatime - xfs /dev/sdb rw\n", want: []string{"/data ro sdb"}},
		{name: "read-only filesystem", lines: "501 500 8:16 /v /data rw - xfs /dev/sdb ro\n", want: []string{"/data rw sdb"}},
		{name: "a disk that the node has not mounted", lines: "501 500 8:48 / /data rw - ext4 /dev/sdd rw\n", want: []string{"/data rw sdd"}},
		{
			name:  "hidden by a later one",
			lines: "501 500 8:48 / /data rw - ext4 /dev/sdd rw\n502 501 8:16 / /data rw - xfs /dev/sdb rw\n503 500 0:62 / /data rw - tmpfs t rw\n",
			want:  []string{"/data rw sdd", "/data rw sdb"},
		},
		{name: "hidden on the root", lines: "501 500 8:48 / / rw - ext4 /dev/sdd rw\n", want: []string{"/ rw sdd"}},
		{name: "a root of 60 KiB", lines: "501 500 8:48 " + long + " /data rw - ext4 /dev/sdd rw\n", want: []string{"/data rw sdd"}},
		{
			name: "a mountpoint of 60 KiB", lines: "501 500 8:48 / " + long + " rw - ext4 /dev/sdd rw\n",
			want: []string{long[:20*201] + " rw sdd"},
		},
		{name: "a long mountpoint in memory", lines: "501 500 0:62 / " + long + " rw - tmpfs t rw\n"},
		{name: "a disk that has left", lines: "501 500 65:16 / /data rw - ext4 /dev/sdr rw\n502 500 65:32 / /data rw - ext4 /dev/sds rw\n"},
		{
			name: "an overlay that the node has not mounted", lines: "501 500 0:99 / /data rw - overlay overlay rw,lowerdir=/l,upperdir=/var/lib/containerd/u\n",
			want: []string{"/data rw sda sdb"},
		},
		{
			name: "options that are too long", lines: "501 500 0:99 / /data rw - overlay overlay rw,lowerdir=" + strings.Repeat("l", 1<<20) + "\n",
			want: []string{"/data rw: has no block device, only the device number 0:99"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			n.setProcess(t, "500 400 0:60 / / ro,relatime master:1 - overlay overlay rw,lowerdir=/l,upperdir=/u\n"+tt.lines)
			mounts, err := n.ProcessMounts(t.Context(), 123, procCgroup)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(append([]string{"/ ro root/u"}, tt.want...), describeMounts(mounts)); d != "" {
				t.Errorf("-want +got:\n%s", d)
			}
		})
	}
}

func describeMounts(mounts []blkio.ProcessMount) []string {
	var out []string
	for _, m := range mounts {
		text := m.Mountpoint + map[bool]string{true: " ro", false: " rw"}[m.ReadOnly]
		switch {
		case m.IsRoot:
			text += " root" + m.Upper
		case m.Backing.Err != nil:
			text += ": " + strings.TrimSpace(m.Backing.Err.Error())
		default:
			for _, d := range m.Backing.Disks {
				text += " " + d.Name
			}
		}
		out = append(out, text)
	}
	return out
}

// TestProcessMountsByNumber verifies that a filesystem without a device number of its own is known by the
// node's mount of it.
func TestProcessMountsByNumber(t *testing.T) {
	n := newFakeNode(t, nodeMounts)
	n.mkdir(t, "/u")
	n.mkdir(t, "/l")
	for mountpoint, disks := range map[string]string{"/srv/btrfs": "sda sdc", "/var/lib/containerd/rootfs": "sda"} {
		m, ok := n.Mounts().Find(mountpoint)
		if !ok {
			t.Fatal(mountpoint)
		}
		n.setProcess(t, fmt.Sprintf("501 500 %s / /data rw - %s none rw\n", m.Dev, m.FSType))
		mounts, err := n.ProcessMounts(t.Context(), 123, procCgroup)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff([]string{"/data rw " + disks}, describeMounts(mounts)); d != "" {
			t.Errorf("%s: -want +got:\n%s", mountpoint, d)
		}
	}
}

// TestNoProcess verifies that a number that names no process any more, or another one, differs from a failure.
func TestNoProcess(t *testing.T) {
	n := newFakeNode(t, nodeMounts)
	n.setProcess(t, "501 500 8:16 / /data rw - xfs /dev/sdb rw\n")
	if _, err := n.ProcessMounts(t.Context(), 124, procCgroup); !errors.Is(err, ErrNoProcess) {
		t.Errorf("ended: %v", err)
	}
	if _, err := n.ProcessMounts(t.Context(), 123, "kubepods.slice/cri-containerd-6.scope"); !errors.Is(err, ErrNoProcess) {
		t.Errorf("in another cgroup: %v", err)
	}
	if err := os.Remove(filepath.Join(n.cfg.Proc, "123", "mountinfo")); err != nil {
		t.Fatal(err)
	}
	if _, err := n.ProcessMounts(t.Context(), 123, procCgroup); !errors.Is(err, ErrNoProcess) {
		t.Errorf("ended between the two files: %v", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	n.setProcess(t, "501 500 8:16 / /data rw - xfs /dev/sdb rw\n")
	if _, err := n.ProcessMounts(ended, 123, procCgroup); !errors.Is(err, context.Canceled) || errors.Is(err, ErrNoProcess) {
		t.Errorf("at the deadline: %v", err)
	}
}

// TestManyProcessMounts verifies that the disks of a filesystem that a container has 4,000 mounts of are
// searched for once.
func TestManyProcessMounts(t *testing.T) {
	n := newFakeNode(t, nodeMounts)
	var lines strings.Builder
	for i := range 4000 {
		fmt.Fprintf(&lines, "%d 500 8:48 /v/%d /data/%d rw - ext4 /dev/sdd rw\n", 501+i, i, i)
	}
	n.setProcess(t, lines.String())
	mounts, err := n.ProcessMounts(t.Context(), 123, procCgroup)
	if err != nil || len(mounts) != 4000 {
		t.Fatalf("%d mounts, %v", len(mounts), err)
	}
	for _, m := range mounts {
		if m.Backing != mounts[0].Backing {
			t.Fatal("the disks of a filesystem are looked up again")
		}
	}
}
