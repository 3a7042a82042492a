// Package cgroup reads the block I/O files of cgroups. It shares no code with the plugin, so
// that a test does not use the parser that it tests.
package cgroup

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Root is where cgroup v2 is mounted.
const Root = "/sys/fs/cgroup"

// Dir is a cgroup, as a path below Root.
type Dir string

func (d Dir) file(name string) string { return filepath.Join(Root, string(d), name) }

// IOMax returns io.max by device number: "254:16" -> "wbps=1048576", without
// the keys that are max. A device without limits is not in it.
func (d Dir) IOMax() (map[string]string, error) {
	return d.values("io.max", "max")
}

// SetIOMax writes a line to io.max, as other tools would.
func (d Dir) SetIOMax(line string) error {
	err := os.WriteFile(d.file("io.max"), []byte(line), 0)
	if err != nil {
		return fmt.Errorf("write %q: %w", line, err)
	}
	return nil
}

// values reads a nested keyed file, leaving out the pairs with a value.
func (d Dir) values(file, without string) (map[string]string, error) {
	data, err := os.ReadFile(d.file(file))
	if err != nil {
		return nil, err
	}
	found := make(map[string]string)
	for line := range strings.Lines(string(data)) {
		device, pairs, _ := strings.Cut(strings.TrimSpace(line), " ")
		var kept []string
		for pair := range strings.FieldsSeq(pairs) {
			if _, value, _ := strings.Cut(pair, "="); value != without {
				kept = append(kept, pair)
			}
		}
		if len(kept) > 0 {
			found[device] = strings.Join(kept, " ")
		}
	}
	return found, nil
}

// Weight returns the default line of io.weight.
func (d Dir) Weight() (int, error) {
	data, err := os.ReadFile(d.file("io.weight"))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(data)) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), "default "); ok {
			return strconv.Atoi(value)
		}
	}
	return 0, fmt.Errorf("%s: no default line in %q", d.file("io.weight"), data)
}

// Record returns the plugin's record of the cgroup, "" where there is none: a pod's is on its
// own directory, a container's on the one above.
func (d Dir) Record() (string, error) {
	const xattr = "user.nri-blkio"
	above := filepath.Dir(strings.TrimSuffix(d.file(""), "/"))
	text, err := readXattr(above, xattr+"."+filepath.Base(string(d)))
	if text == "" && err == nil {
		text, err = readXattr(d.file(""), xattr)
	}
	return text, err
}

func readXattr(dir, xattr string) (string, error) {
	buf := make([]byte, 64<<10)
	n, err := unix.Getxattr(dir, xattr, buf)
	if errors.Is(err, unix.ENODATA) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read xattr %s of %s: %w", xattr, dir, err)
	}
	return string(buf[:n]), nil
}

// Counter returns a sum of io.stat: "rbytes", "wbytes", "rios" or "wios".
func (d Dir) Counter(device, name string) (int64, error) {
	f, err := os.Open(d.file("io.stat"))
	if err != nil {
		return 0, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) == 0 || fields[0] != device {
			continue
		}
		for _, field := range fields[1:] {
			if value, ok := strings.CutPrefix(field, name+"="); ok {
				return strconv.ParseInt(value, 10, 64)
			}
		}
	}
	return 0, lines.Err() // no line yet: no I/O yet
}

// OfProcesses returns the cgroup that has the processes of a container, and the limits of its OCI spec. With the systemd driver
// crun makes a child of the container's cgroup for them, which can then have no processes itself.
func OfProcesses(container string) string {
	child := filepath.Join(container, "container")
	if _, err := os.Stat(filepath.Join(Root, child)); err == nil {
		return child
	}
	return container
}

// PIDs returns the processes in the cgroup and in those below it.
func (d Dir) PIDs() ([]int, error) {
	var pids []int
	err := filepath.WalkDir(d.file(""), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.Name() != "cgroup.procs" {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for field := range strings.FieldsSeq(string(data)) {
			pid, err := strconv.Atoi(field)
			if err != nil {
				return err
			}
			pids = append(pids, pid)
		}
		return nil
	})
	return pids, err
}

// IDs returns the IDs of the cgroup and of its descendants.
func (d Dir) IDs() ([]uint64, error) {
	var ids []uint64
	err := filepath.WalkDir(d.file(""), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.IsDir() {
			return err
		}
		var st unix.Stat_t
		if err := unix.Stat(path, &st); err != nil {
			return err
		}
		ids = append(ids, st.Ino)
		return nil
	})
	return ids, err
}

// Disk returns the device number of a whole disk, "vdb" -> "254:16".
func Disk(name string) (string, error) {
	data, err := os.ReadFile(filepath.Join("/sys/block", name, "dev"))
	if err != nil {
		return "", fmt.Errorf("number of disk %s: %w", name, err)
	}
	return strings.TrimSpace(string(data)), nil
}
