package calibrate

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// Dir is an open directory on the disk, for the file that is written. It stays the same directory if its path
// leads elsewhere later.
type Dir struct {
	file *os.File
	name string // as the user named it
}

// OpenDir opens a directory of the node, whose root filesystem is mounted at root. It returns an
// error unless all that is written there is written to the disk, and to no other one.
func (n *Node) OpenDir(ctx context.Context, root, name string, disk blkio.Disk) (*Dir, error) {
	if err := n.checkDir(ctx, name, name, disk); err != nil { // before: to open one of a network filesystem can hang
		return nil, err
	}
	d, place, err := openDir(root, name)
	if err != nil {
		return nil, err
	}
	// A link in the path may have led elsewhere before OpenDir. So the mount table is refreshed now.
	err = n.Storage.Refresh(ctx)
	if err == nil {
		err = n.checkDir(ctx, name, place, disk)
	}
	if err != nil {
		d.Close()
		return nil, err
	}
	return d, nil
}

// Close closes the directory.
func (d *Dir) Close() error { return d.file.Close() }

// openDir opens a directory, with symlinks as the node resolves them. It also returns the path of
// the node that the open directory has, without symlinks.
func openDir(root, name string) (_ *Dir, place string, err error) {
	base, err := os.OpenFile(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, "", err
	}
	defer base.Close()
	fd, err := unix.Openat2(int(base.Fd()), name, &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return nil, "", &os.PathError{Op: "open", Path: name, Err: err}
	}
	d := &Dir{file: os.NewFile(uintptr(fd), name), name: name}
	if place, err = placeBelow(base, d.file); err != nil {
		d.Close()
		return nil, "", fmt.Errorf("open %s: %w", name, err)
	}
	return d, place, nil
}

// placeBelow returns the path of an open directory below another one.
func placeBelow(base, dir *os.File) (string, error) {
	var paths [2]string
	for i, f := range []*os.File{base, dir} {
		var err error
		if paths[i], err = os.Readlink(fmt.Sprintf("/proc/self/fd/%d", f.Fd())); err != nil {
			return "", err
		}
	}
	rest, ok := strings.CutPrefix(paths[1]+"/", strings.TrimSuffix(paths[0], "/")+"/")
	if !ok {
		return "", fmt.Errorf("it was moved to %s", paths[1])
	}
	return filepath.Join("/", rest), nil
}

// checkDir returns an error unless all writes in a directory of the node go to the disk, and to no other one.
// name is the directory's name in the error.
func (n *Node) checkDir(ctx context.Context, name, dir string, disk blkio.Disk) error {
	b := n.Storage.Resolve(ctx, dir)
	if len(b.Disks) == 0 {
		return fmt.Errorf("%s is not on disk %s: %s", name, disk.Name, b.Reason)
	}
	var names []string
	isOther := false
	for _, d := range b.Disks {
		below, err := n.Storage.Physical(d.Dev)
		if err != nil {
			return err
		}
		for _, p := range below {
			names = append(names, p.Name)
			isOther = isOther || p.Dev != disk.Dev
		}
	}
	if isOther {
		return fmt.Errorf("%s is on %s, not on disk %s alone", name, strings.Join(names, " and "), disk.Name)
	}
	return nil
}
