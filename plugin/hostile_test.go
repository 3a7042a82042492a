package plugin

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// TestLongMountLine: a tenant who renames the directory of a subPath to below a deep
// one makes a line of mountinfo that is longer than any buffer. Other tenants'
// containers have their limits all the same, and so has a plugin that starts then.
func TestLongMountLine(t *testing.T) {
	const good = "1 0 254:0 / / rw - ext4 /dev/vda rw\n"
	mountinfo := filepath.Join(t.TempDir(), "mountinfo")
	write(t, mountinfo, good)
	open := func() *blkio.Storage {
		s, err := blkio.OpenStorage(blkio.StorageConfig{Sys: os.DirFS("/sys"), Mountinfo: mountinfo, HostRoot: "/"})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		return s
	}
	h, _ := tree(t)
	p := newPlugin(t, h)
	storage := open()
	write(t, mountinfo, good+"2 1 254:0 "+strings.Repeat("/"+strings.Repeat("d", 250), 300)+
		" /var/lib/kubelet/pods/evil/volume-subpaths/v/c/0 rw - ext4 /dev/vda rw\n")
	for _, s := range []*blkio.Storage{storage, open()} {
		if err := s.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		p.storage = disks{func(path string) blkio.Backing {
			if b := s.Resolve(t.Context(), path); b.Mountpoint == "/" {
				return on(rootDisk)
			}
			return blkio.Backing{Reason: "another mount than the root"}
		}}
		session := &session{p: p, log: p.log, deadline: time.Minute}
		sb := sandbox(map[string]string{limitsKey + "container.db": "rootfs wbps=1Mi"})
		adjust, _, err := session.CreateContainer(t.Context(), sb, ctr("db"))
		if err != nil || adjust.GetLinux().GetResources().GetUnified()["io.max"] == "" {
			t.Errorf("not limited: %v, %v", adjust, err)
		}
	}
}
