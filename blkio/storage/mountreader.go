package storage

import (
	"bufio"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"maps"
	"slices"
)

// mountReader reads the mount table repeatedly. It parses only lines that the last table
// did not have, and takes the other mounts from that table. To parse all lines of 5,000
// mounts takes 10 ms and makes 6 MB of garbage, while a handler may be waiting. Its memory
// grows with the number of lines, and not with their lengths.
type mountReader struct {
	seed  maphash.Seed
	lines map[uint64]line // by their hashes
	reads int
	table *MountTable // of the last reading, to make the next one of
	in    lineReader  // keeps its buffers
}

// line is one that was there at a reading; its Mount is nil if it has none.
type line struct {
	*Mount
	read int // the last one
}

func newMountReader() *mountReader {
	return &mountReader{
		seed: maphash.MakeSeed(), lines: make(map[uint64]line), table: newMountTable(nil),
		in: lineReader{src: bufio.NewReaderSize(nil, 32<<10)},
	}
}

// read returns the table, and the mounts that came and went since the last reading. They are not known at the first one.
func (r *mountReader) read(src io.Reader) (mountChange, error) {
	r.in.src.Reset(src)
	r.reads++
	var mounts, added []*Mount
	names := make(mountNames)
	for {
		err := r.in.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			*r = *newMountReader() // A part of the lines has been taken in.
			return mountChange{}, fmt.Errorf("read mountinfo: %w", err)
		}
		h := maphash.Bytes(r.seed, r.in.line.text) + uint64(r.in.line.cut)
		l, isKnown := r.lines[h]
		if l.read == r.reads {
			continue // The same line twice.
		}
		if !isKnown {
			l.Mount = r.in.line.parseMount(names)
		}
		r.lines[h] = line{l.Mount, r.reads}
		if l.Mount == nil {
			continue
		}
		mounts = append(mounts, l.Mount)
		if !isKnown {
			added = append(added, l.Mount)
		}
	}
	gone := r.forget()
	r.table = r.table.next(mounts, added, gone)
	if r.reads == 1 {
		return mountChange{table: r.table}, nil
	}
	changed := slices.AppendSeq(make([]*Mount, 0, len(added)+len(gone)), maps.Keys(gone))
	return mountChange{table: r.table, mounts: append(changed, added...)}, nil
}

// forget drops the lines that were not read the last time, and returns their mounts.
func (r *mountReader) forget() map[*Mount]bool {
	gone := make(map[*Mount]bool)
	maps.DeleteFunc(r.lines, func(_ uint64, l line) bool {
		if l.read == r.reads {
			return false
		}
		if l.Mount != nil {
			gone[l.Mount] = true
		}
		return true
	})
	return gone
}
