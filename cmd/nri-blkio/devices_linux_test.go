package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/blkio/storage"
)

// TestDevicesHere reads the machine that runs the tests, with any devices.
func TestDevicesHere(t *testing.T) {
	cgroups := t.TempDir()
	if err := os.WriteFile(filepath.Join(cgroups, "cgroup.controllers"), []byte("io\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	var stdout, stderr bytes.Buffer
	a := &app{stdout: &stdout, stderr: &stderr, getenv: os.Getenv, openCgroups: cgroupfs.OpenTree}
	if err := a.run(t.Context(), []string{"devices", "--all", "--cgroup-root", cgroups}); err != nil {
		t.Fatal(err, stderr.String())
	}
	disks, err := storage.NewSysfs(os.DirFS("/sys")).Disks()
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range disks {
		if d.Dev.Major != 1 && !strings.Contains(stdout.String(), d.Name+" ") {
			t.Errorf("%s is not in\n%s", d.Name, stdout.String())
		}
	}
	t.Log(stdout.String(), stderr.String())
}
