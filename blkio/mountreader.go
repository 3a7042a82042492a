package blkio

import (
	"bufio"
	"bytes"
	"fmt"
	"hash/maphash"
	"io"
	"maps"
)

// mountReader reads the mount table again and again. From one reading to the
// next a few lines of thousands are new, and only those are parsed; the other
// mounts are those of the table before. Parsing all takes 10 ms and makes 6 MB of
// garbage for 5,000 mounts, just when a handler is to be fast.
type mountReader struct {
	seed   maphash.Seed
	lines  map[uint64]line // by their hashes
	hashes []uint64        // of the lines in the order of the file
	reads  int
}

// line is one that was there at a reading.
type line struct {
	*Mount
	read int // the last one
}

func newMountReader() *mountReader {
	return &mountReader{seed: maphash.MakeSeed(), lines: make(map[uint64]line)}
}

func (r *mountReader) read(src io.Reader) (*MountTable, error) {
	r.hashes = r.hashes[:0]
	var fresh bytes.Buffer
	lines := 0
	scan := bufio.NewScanner(src)
	for scan.Scan() {
		line := scan.Bytes()
		h := maphash.Bytes(r.seed, line)
		r.hashes = append(r.hashes, h)
		if _, known := r.lines[h]; !known {
			fresh.Write(line)
			fresh.WriteByte('\n')
			lines++
		}
	}
	if err := scan.Err(); err != nil {
		return nil, fmt.Errorf("read mountinfo: %w", err)
	}
	added, err := parseMounts(&fresh)
	if err != nil {
		return nil, err
	}
	if len(added) != lines {
		return nil, fmt.Errorf("parse mountinfo: %d mounts in %d lines", len(added), lines)
	}
	return newMountTable(r.merge(added)), nil
}

// merge puts the lines that were known and those that were not in order.
func (r *mountReader) merge(added []*Mount) []*Mount {
	mounts := make([]*Mount, 0, len(r.hashes))
	for _, h := range r.hashes {
		l, known := r.lines[h]
		if !known {
			l.Mount, added = added[0], added[1:] // one of each line
		}
		mounts = append(mounts, l.Mount)
	}
	r.reads++
	for i, h := range r.hashes {
		r.lines[h] = line{mounts[i], r.reads}
	}
	maps.DeleteFunc(r.lines, func(_ uint64, l line) bool { return l.read != r.reads })
	return mounts
}
