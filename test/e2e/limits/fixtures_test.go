package limits

import (
	"flag"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
)

// captureTo is the file to write a capture to, in the form of those of real nodes in blkio/testdata.
var captureTo = flag.String("capture", "", "write sysfs with the stacks of TestStorage to this `file`")

// captured are the attributes of a block device that the program may read.
var captured = []string{
	"dev", "size", "ro", "hidden", "partition", "queue/rotational", "queue/scheduler", "device/model",
	"dm/name", "dm/uuid", "md/level", "loop/backing_file",
}

// capture writes a txtar archive of the block devices in sysfs, with symlinks as empty files
// "NAME -> TARGET", of mountinfo, and of the output of lsblk.
func capture(t *testing.T) {
	if *captureTo == "" {
		return
	}
	a := &txtar.Archive{Comment: []byte("Linux " + kernelRelease(t) + "\n")}
	add := func(name string, data []byte) { a.Files = append(a.Files, txtar.File{Name: name, Data: data}) }
	for _, pattern := range []string{"block/*", "class/block/*", "dev/block/*", "fs/btrfs/*/devices/*"} {
		for _, link := range glob(t, "/sys/"+pattern) {
			target, err := os.Readlink(link)
			if err != nil {
				t.Fatal(err)
			}
			add(strings.TrimPrefix(link, "/")+" -> "+target, nil)
		}
	}
	for _, link := range glob(t, "/sys/class/block/*") {
		dir, err := filepath.EvalSymlinks(link)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range captured {
			if data, err := os.ReadFile(path.Join(dir, name)); err == nil {
				add(strings.TrimPrefix(path.Join(dir, name), "/"), data)
			}
		}
		for _, slave := range glob(t, dir+"/slaves/*") {
			target, err := os.Readlink(slave)
			if err != nil {
				t.Fatal(err)
			}
			add(strings.TrimPrefix(slave, "/")+" -> "+target, nil)
		}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	add("mountinfo", mounts)
	out, err := exec.CommandContext(t.Context(), "lsblk", "--json", "--tree", "--all", "--output", "KNAME,TYPE,MAJ:MIN").Output()
	if err != nil {
		t.Fatal(err)
	}
	add("lsblk.json", out)
	if err := os.WriteFile(*captureTo, txtar.Format(a), 0o644); err != nil {
		t.Fatal(err)
	}
}

func glob(t *testing.T, pattern string) []string {
	t.Helper()
	names, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(names, func(name string) bool {
		info, err := os.Lstat(name)
		return err != nil || info.Mode()&fs.ModeSymlink == 0
	})
}

func kernelRelease(t *testing.T) string {
	t.Helper()
	data, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(data))
}
