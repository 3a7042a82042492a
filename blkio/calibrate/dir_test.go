package calibrate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func TestOpenDir(t *testing.T) {
	root := t.TempDir()
	n, _ := nodeAt(t, root, nil)
	for link, target := range map[string]string{"data": "/srv/data", "up": "../../srv/data", "other": "/srv/other", "file": "/srv/data/a.img"} {
		if err := os.Symlink(target, filepath.Join(root, link)); err != nil {
			t.Fatal(err)
		}
	}
	for dir, want := range map[string]string{
		"/srv/data":  "",
		"/data":      "", // a link leads to a path of the node, not of this machine
		"/up":        "",
		"/other":     "/other is on vdc, not on disk vdb alone",
		"/srv/raid":  "/srv/raid is on vdb and vdc, not on disk vdb alone",
		"/srv/mem":   "/srv/mem is not on disk vdb: tmpfs is memory, not a disk",
		"/srv/other": "/srv/other is on vdc, not on disk vdb alone",
		"/file":      "open /file: not a directory",
		"/srv/data/": "",
	} {
		d, err := n.OpenDir(t.Context(), root, dir, vdb)
		if want == "" && err != nil || want != "" && (err == nil || err.Error() != want) {
			t.Errorf("%s: %v, want %s", dir, err, want)
		}
		if err == nil {
			d.Close()
		}
	}
}

// TestOpenDirChanged verifies that OpenDir fails if a link in the path leads elsewhere in the meantime, because
// a container can write there. It does not open a directory on another disk.
func TestOpenDirChanged(t *testing.T) {
	root, actual := t.TempDir(), t.TempDir()
	n, _ := nodeAt(t, root, nil) // resolves a path in root
	for _, dir := range []string{"srv/data", "srv/other"} {
		if err := os.MkdirAll(filepath.Join(actual, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for at, target := range map[string]string{root: "/srv/data", actual: "/srv/other"} {
		if err := os.Symlink(target, filepath.Join(at, "link")); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := n.OpenDir(t.Context(), actual, "/link", vdb); err == nil || err.Error() != "/link is on vdc, not on disk vdb alone" {
		t.Errorf("got %v", err)
	}
}

// TestOpenDirInRoot verifies that no path leads out of the node's root filesystem, and none through a link of
// procfs, which names an open file of this process.
func TestOpenDirInRoot(t *testing.T) {
	root := t.TempDir()
	for link, target := range map[string]string{"up": "../../..", "self": "self"} {
		if err := os.Symlink(target, filepath.Join(root, link)); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]string{"/../..": "/", "up": "/", "/up/up/": "/", "self": "", "": ""} {
		d, place, err := openDir(root, name)
		if err == nil {
			d.Close()
		}
		if place != want || (err == nil) != (want != "") || err != nil && !strings.HasPrefix(err.Error(), "open "+name+": ") {
			t.Errorf("%q: %q, %v, want %q", name, place, err, want)
		}
	}
	if _, place, err := openDir("/", "/proc/self/cwd"); !errors.Is(err, unix.ELOOP) {
		t.Errorf("%q, %v", place, err)
	}
}

// TestOpenDirWhileRenamed verifies that a path with a ".." is opened while files of the node are renamed all the time.
func TestOpenDirWhileRenamed(t *testing.T) {
	root, other := t.TempDir(), filepath.Join(t.TempDir(), "f")
	if err := errors.Join(os.Symlink("../..", filepath.Join(root, "up")), os.WriteFile(other, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var renames sync.WaitGroup
	renames.Go(func() {
		for ctx.Err() == nil {
			if err := errors.Join(os.Rename(other, other+"2"), os.Rename(other+"2", other)); err != nil {
				t.Error(err)
				return
			}
		}
	})
	for range 5000 { // without another try, some fail
		d, _, err := openDir(root, "up/up/up/up")
		if err != nil {
			t.Error(err)
			break
		}
		d.Close()
	}
	stop()
	renames.Wait()
}

// TestDirStays verifies that the object at the path of the directory does not matter after it was opened.
func TestDirStays(t *testing.T) {
	base := t.TempDir()
	for _, dir := range []string{"a", "b"} {
		if err := os.Mkdir(filepath.Join(base, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	d := opened(t, base+"/a")
	if err := errors.Join(os.Rename(base+"/a", base+"/moved"), os.Symlink("b", base+"/a")); err != nil {
		t.Fatal(err)
	}
	f, err := d.openFile()
	switch {
	case errors.Is(err, unix.EINVAL): // no direct I/O
	case err != nil:
		t.Fatal(err)
	default:
		at, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
		f.Close()
		if err != nil || !strings.HasPrefix(at, base+"/moved/") {
			t.Errorf("the file is at %s, %v", at, err)
		}
	}
	// A directory of another tree.
	outside := opened(t, t.TempDir())
	if place, err := placeBelow(d.file, outside.file); err == nil || !strings.Contains(err.Error(), "it was moved to ") {
		t.Errorf("%s, %v", place, err)
	}
}

// inNamespace is set in the process that has its own mounts.
const inNamespace = "NRI_BLKIO_TEST_IN_NAMESPACE"

// TestBadFilesystems verifies that a full and a read-only filesystem give an error with advice, and that no
// file is left on them. It needs mounts of its own, which this machine may not permit.
func TestBadFilesystems(t *testing.T) {
	if os.Getenv(inNamespace) != "" {
		testBadFilesystems(t)
		return
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestBadFilesystems$", "-test.v")
	cmd.Env = append(os.Environ(), inNamespace+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
	out, err := cmd.CombinedOutput()
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EACCES) {
		t.Skip("no user namespaces here: ", err)
	}
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	if strings.Contains(string(out), "--- SKIP") {
		t.Skipf("%s", out)
	}
}

func testBadFilesystems(t *testing.T) {
	mount := func(options string) string {
		dir := t.TempDir()
		if err := unix.Mount("tmpfs", dir, "tmpfs", 0, options); err != nil {
			t.Skip("no mounts here: ", err)
		}
		t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
		return dir
	}
	wants := func(f *scratchFile, err error, want string) {
		t.Helper()
		if f != nil {
			f.Close()
		}
		if errors.Is(err, unix.EINVAL) { // tmpfs has direct I/O from Linux 6.6 on
			return
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	small := mount("size=8m")
	f, err := createFile(t.Context(), opened(t, small), mib)
	wants(f, err, "create a file in "+small+": only 8 MiB are free, 256 MiB are needed")

	full := mount("size=300m")
	f, err = createFile(t.Context(), opened(t, full), 64*mib)
	if err == nil {
		err = explain(f.prepare(t.Context(), 400*mib))
		f.Close()
	}
	wants(nil, err, "no space left on device: name a directory with more free space")
	readOnly := mount("size=300m")
	if err := unix.Mount("", readOnly, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	f, err = createFile(t.Context(), opened(t, readOnly), 64*mib)
	wants(f, err, "create a file in "+readOnly+": read-only file system: name a directory that can be written")
	testSaves(t, mount("size=64k"), readOnly)
	for _, dir := range []string{small, full, readOnly} {
		var st unix.Statfs_t
		entries, err := os.ReadDir(dir)
		if err := errors.Join(err, unix.Statfs(dir, &st)); err != nil || len(entries) > 0 || st.Bfree != st.Blocks {
			t.Errorf("%s: %v, %d of %d blocks are free, %v", dir, entries, st.Bfree, st.Blocks, err)
		}
	}
}

// testSaves verifies that a save without space fails. The earlier file stays, and no other is left.
func testSaves(t *testing.T, full, readOnly string) {
	c := calibration(t, IdentityOf(&disk))
	if _, err := Save(full, c); err != nil {
		t.Fatal(err)
	}
	filler, err := os.Create(filepath.Join(full, "filler"))
	if err != nil {
		t.Fatal(err)
	}
	defer filler.Close()
	for err == nil {
		_, err = filler.Write(make([]byte, 4096))
	}
	other := *c
	other.Model.Rbps *= 2
	if _, err := Save(full, &other); !errors.Is(err, unix.ENOSPC) || !strings.HasPrefix(err.Error(), "save calibration: ") {
		t.Errorf("full: %v", err)
	}
	if got, err := Load(full, &disk); err != nil || got == nil || got.Model != c.Model {
		t.Errorf("what was saved before is %+v, %v", got, err)
	}
	if entries, err := os.ReadDir(full); err != nil || len(entries) != 2 {
		t.Errorf("left: %v, %v", entries, err)
	}
	for _, dir := range []string{readOnly, filepath.Join(readOnly, "new")} {
		if _, err := Save(dir, c); !errors.Is(err, unix.EROFS) || !strings.HasPrefix(err.Error(), "save calibration: ") {
			t.Errorf("%s: %v", dir, err)
		}
	}
}
