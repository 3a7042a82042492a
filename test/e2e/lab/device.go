package lab

import (
	"fmt"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nri-blkio/nri-blkio/test/e2e/cgroup"
	"github.com/nri-blkio/nri-blkio/test/e2e/cri"
)

// MakeDevice makes a device node in a running container, as KubeVirt does. number is that of the device.
func MakeDevice(t *testing.T, k *cri.Container, path, number string) {
	t.Helper()
	pids, err := cgroup.Dir(k.Cgroup).PIDs()
	if err != nil || len(pids) == 0 {
		t.Fatalf("processes of %s: %v (%v)", k.Name, pids, err)
	}
	var major, minor uint32
	if _, err := fmt.Sscanf(number, "%d:%d", &major, &minor); err != nil {
		t.Fatal(err)
	}
	at := filepath.Join(fmt.Sprintf("/proc/%d/root", pids[0]), path)
	if err := unix.Mknod(at, unix.S_IFBLK|0o600, int(unix.Mkdev(major, minor))); err != nil {
		t.Fatalf("make %s: %v", at, err)
	}
}
