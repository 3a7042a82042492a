package storage

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"io"
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// The bounds of a line.
const (
	// maxMountPath is the longest path that any call of the kernel takes, without
	// the final zero. The kernel prints longer ones: a tenant can bind a directory
	// of a volume, as a subPath, and rename it to below a deep one.
	maxMountPath = unix.PathMax - 1
	// maxMountField is the longest field of a line that is kept. A path of maxMountPath bytes is up to four
	// times as long when it is escaped, and an overlay names each of its layers.
	maxMountField = 64 << 10
	maxMountLine  = 4 * maxMountField
)

// The fields of a line that come before the optional ones.
const (
	fieldID = iota
	fieldParent
	fieldDev
	fieldRoot
	fieldMountpoint
	fieldOptions
	fieldOthers // all that follow
)

// mountLine is one line of mountinfo. A field that is too long is cut, so that no
// line takes more memory than maxMountLine.
type mountLine struct {
	text []byte // without the newline
	cut  uint8  // a bit for each of the fields above
}

func (l *mountLine) isCut(field int) bool { return l.cut&(1<<field) != 0 }

// lineReader reads the lines of a mountinfo file.
type lineReader struct {
	src  *bufio.Reader
	line mountLine // the current one
}

// next reads a line, and returns io.EOF after the last one.
func (r *lineReader) next() error {
	r.line.text, r.line.cut = r.line.text[:0], 0
	field, size := fieldID, 0
	for {
		chunk, err := r.src.ReadSlice('\n')
		for len(chunk) > 0 {
			end := bytes.IndexByte(chunk, ' ') + 1
			part := chunk[:cmp.Or(end, len(chunk))]
			chunk = chunk[len(part):]
			size += r.line.add(part, min(field, fieldOthers), size)
			if end > 0 {
				field, size = field+1, 0
			}
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case err != nil && (!errors.Is(err, io.EOF) || len(r.line.text) == 0):
			return err
		}
		r.line.text = bytes.TrimSuffix(r.line.text, []byte("\n"))
		return nil
	}
}

// add appends a part of a field, as far as there is room. size is the number of bytes of the field before it.
// add returns the length of the part.
func (l *mountLine) add(part []byte, field, size int) int {
	room := max(0, min(maxMountField-size, maxMountLine-len(l.text)))
	if len(part) <= room {
		l.text = append(l.text, part...)
		return len(part)
	}
	l.cut |= 1 << field
	l.text = append(l.text, part[:room]...)
	if last := part[len(part)-1]; last == ' ' && len(l.text) < maxMountLine {
		l.text = append(l.text, ' ')
	}
	return len(part)
}

// The reasons why a mount cannot be read. Tenants see them.
const (
	badLine        = "this node cannot read its entry in the kernel's mount table"
	longMountpoint = "the path of its mountpoint is longer than the kernel's PATH_MAX"
)

// parseMount returns nil for a line that describes no mount: one without an ID, or one whose
// mountpoint cannot be reached from the root of the process. A filesystem that
// prints a newline among its options makes such lines.
func (l *mountLine) parseMount(names mountNames) *Mount {
	var fields [fieldOthers][]byte
	rest := l.text
	for i := range fields {
		end := bytes.IndexByte(rest, ' ')
		if end < 0 && i < fieldOptions {
			return nil
		}
		if end < 0 {
			end = len(rest)
		}
		if fields[i], rest = rest[:end], rest[end:]; i < fieldOptions {
			rest = rest[1:]
		}
	}
	id, idErr := strconv.Atoi(string(fields[fieldID]))
	parent, parentErr := strconv.Atoi(string(fields[fieldParent]))
	point := path.Clean(unescapeOctal(string(fields[fieldMountpoint][:min(len(fields[fieldMountpoint]), 4*maxMountPath)])))
	if idErr != nil || parentErr != nil || !strings.HasPrefix(point, "/") {
		return nil
	}
	m := &Mount{ID: id, Parent: parent}
	if isMountPath(fields[fieldRoot]) {
		m.Root = names.intern(fields[fieldRoot])
	}
	var err error
	isWhole := l.parseFilesystem(m, rest, names)
	if m.Dev, err = blkio.ParseDev(string(fields[fieldDev])); err != nil || !isWhole {
		m.Unreadable = badLine
	}
	if !m.setMountpoint(point, isMountPath(fields[fieldMountpoint])) {
		return nil
	}
	return m
}

// setMountpoint takes a clean mountpoint, or the beginning of one that is too long. It
// returns false for a name so long that no filesystem has it: the mount must not hide
// half of the node.
func (m *Mount) setMountpoint(point string, isWhole bool) bool {
	m.Mountpoint = point
	if isWhole {
		return true
	}
	m.Mountpoint, m.Unreadable = strings.Clone(parentDir(point[:min(len(point), maxMountPath)])), longMountpoint
	return len(m.Mountpoint) >= maxMountPath/2
}

// isMountPath reports whether a field is not longer than maxMountPath, unescaped.
// The kernel escapes each backslash.
func isMountPath(field []byte) bool {
	return len(field)-3*bytes.Count(field, []byte(`\`)) <= maxMountPath
}

// parseFilesystem parses the text after the mount options, " master:1 - ext3 /dev/root rw". It reports whether
// all of that is there.
func (l *mountLine) parseFilesystem(m *Mount, rest []byte, names mountNames) bool {
	optional, rest, ok := bytes.Cut(rest, []byte(" - "))
	m.Peers, m.Master = propagation(string(optional))
	fstype, rest, hasSource := bytes.Cut(rest, []byte(" "))
	source, super, hasSuper := bytes.Cut(rest, []byte(" "))
	if !ok || !hasSource || !hasSuper || l.isCut(fieldOptions) || l.isCut(fieldOthers) {
		return false
	}
	m.FSType, m.Source = names.intern(fstype), names.intern(source)
	options, _, _ := strings.Cut(string(super), " ")
	m.setOptions(options)
	return true
}

func (m *Mount) setOptions(options string) {
	switch m.FSType {
	case "overlay":
		m.Options = keptOptions(options, "upperdir", "lowerdir", "lowerdir+", "datadir+")
	case "xfs":
		m.Options = keptOptions(options, "rtdev")
	}
	m.DataJournal = hasOption(options, "data=journal")
	m.SlowFsync = hasOption(options, "nodelalloc") || hasOption(options, "dioread_lock")
}

func keptOptions(options string, keys ...string) string {
	kept := make([]string, 0, 8)
	for option := range strings.SplitSeq(options, ",") {
		if key, _, _ := strings.Cut(option, "="); slices.Contains(keys, key) {
			kept = append(kept, option)
		}
	}
	return strings.Join(kept, ",")
}

// mountNames shares the texts that many mounts have, by how the kernel escapes them.
type mountNames map[string]string

func (n mountNames) intern(escaped []byte) string {
	if name, ok := n[string(escaped)]; ok {
		return name
	}
	key := string(escaped)
	n[key] = unescapeOctal(key)
	return n[key]
}

// propagation reads the optional fields, "shared:7 master:1". It ignores others, as
// proc_pid_mountinfo(5) wants.
func propagation(fields string) (peers, master int) {
	for f := range strings.FieldsSeq(fields) {
		tag, value, _ := strings.Cut(f, ":")
		n, err := strconv.Atoi(value)
		if err != nil {
			continue
		}
		switch tag {
		case "shared":
			peers = n
		case "master":
			master = n
		}
	}
	return peers, master
}

func hasOption(options, want string) bool {
	for o := range strings.SplitSeq(options, ",") {
		if o == want {
			return true
		}
	}
	return false
}
