package storage

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// TestSetQueue verifies that a file of the disk with the number is written, and that none is made.
func TestSetQueue(t *testing.T) {
	sysfs, vdb := t.TempDir(), blkio.Dev{Major: 254, Minor: 16}
	queue := filepath.Join(sysfs, "devices/vdb/queue")
	if err := errors.Join(os.MkdirAll(queue, 0o755), os.MkdirAll(sysfs+"/dev/block", 0o755), os.Symlink("../../devices/vdb", sysfs+"/dev/block/254:16")); err != nil {
		t.Fatal(err)
	}
	if err := SetQueue(sysfs, vdb, "scheduler", "bfq"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without the file: %v", err)
	}
	file := filepath.Join(queue, "scheduler")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := SetQueue(sysfs, vdb, "scheduler", "bfq"); err != nil {
		t.Error(err)
	}
	if got := remedy(&fs.PathError{Op: "open", Path: file, Err: unix.EROFS}); !strings.Contains(got, "first remove weights: bfq from the node policy") {
		t.Errorf("on a read-only /sys: %q", got)
	}
	if got, err := os.ReadFile(file); err != nil || string(got) != "bfq" {
		t.Errorf("the file has %q, %v", got, err)
	}
}
