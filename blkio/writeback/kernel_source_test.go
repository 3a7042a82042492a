package writeback

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// detach is the end of wbc_detach_inode in fs/fs-writeback.c, line by line, with the types of its C.
// Votes.Round must give the same results.
func detach(avgTime, history uint16, maxTime uint64, maxIsForeign bool) (uint16, uint16, bool) {
	const (
		wbFrnTimeShift    = 13
		wbFrnTimeAvgShift = 3
		wbFrnTimeCutDiv   = 8
		wbFrnTimePeriod   = 2 * (1 << wbFrnTimeShift)
		wbFrnHistSlots    = 16
		wbFrnHistUnit     = wbFrnTimePeriod / wbFrnHistSlots
		wbFrnHistThrSlots = wbFrnHistSlots / 2
		wbFrnHistMaxSlots = wbFrnHistThrSlots/2 + 1
	)
	avg := uint64(avgTime)
	if avg != 0 {
		avg += (maxTime >> wbFrnTimeAvgShift) - (avg >> wbFrnTimeAvgShift)
	} else {
		avg = maxTime // immediate catch up on first run
	}
	switches := false
	if maxTime >= avg/wbFrnTimeCutDiv {
		slots := min((maxTime+wbFrnHistUnit-1)/wbFrnHistUnit, wbFrnHistMaxSlots)
		history <<= slots
		if maxIsForeign {
			history |= (1 << slots) - 1
		}
		weight := 0
		for h := history; h != 0; h &= h - 1 {
			weight++
		}
		switches = maxIsForeign && weight > wbFrnHistThrSlots
	}
	return uint16(min(avg, 1<<16-1)), history, switches
}

// TestRoundIsTheKernels compares Round with the kernel's source, for verdicts and rounds of
// all sizes, with those at the bounds of the source's constants among them.
func TestRoundIsTheKernels(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	edges := []uint64{0, 1, 7, 8, 9, slot16th - 1, slot16th, slot16th + 1, 5*slot16th + 1, second, 1<<16 - 1, 1 << 16, 1 << 30}
	pick := func() uint64 {
		if rng.IntN(2) == 0 {
			return edges[rng.IntN(len(edges))]
		}
		return rng.Uint64N(1 << (1 + rng.IntN(20)))
	}
	for range 200_000 {
		v := Votes{History: uint16(rng.Uint32()), Average: uint16(pick())}
		took, foreign := pick(), rng.IntN(2) == 0
		average, history, switches := detach(v.Average, v.History, took, foreign)
		got, moves := v.Round(took, foreign)
		if got != (Votes{History: history, Average: average}) || moves != switches {
			t.Fatalf("%+v after %d, foreign %v: %+v, %v, want %#x, %d, %v", v, took, foreign, got, moves, history, average, switches)
		}
	}
}

// TestFindMappingsCoversTheFile compares the ranges with each page of a mapping: a page that
// shows a page of the part is in a range, and no other is.
func TestFindMappingsCoversTheFile(t *testing.T) {
	page := uint64(os.Getpagesize())
	in := Inode{Dev: blkio.Dev{Major: 8, Minor: 16}, Number: 1311}
	rng := rand.New(rand.NewPCG(3, 4))
	for range 500 {
		start, pages, offset := (1+rng.Uint64N(100))*page, 1+rng.Uint64N(20), rng.Uint64N(20)*page
		from := int64(rng.Uint64N(30 * page))
		to := from + int64(rng.Uint64N(10*page))
		line := fmt.Sprintf("%x-%x r--s %08x 08:10 1311 /a\n", start, start+pages*page, offset)
		ranges, _, err := findMappings(strings.NewReader(line), in, from, to, anyLimit)
		if err != nil || len(ranges) > 1 {
			t.Fatalf("%s: %v, %v", line, ranges, err)
		}
		for i := range pages {
			at, shows := start+i*page, offset+i*page
			want := shows+page > uint64(from) && shows <= uint64(to)
			got := slices.ContainsFunc(ranges, func(r addressRange) bool { return r.start <= at && at+page <= r.start+r.length })
			if got != want {
				t.Errorf("%sof %d to %d: page %d is paged out: %v, want %v", line, from, to, shows/page, got, want)
			}
		}
		for _, r := range ranges {
			if r.start%page != 0 || r.length%page != 0 || r.start < start || r.start+r.length > start+pages*page {
				t.Errorf("%sof %d to %d: range %+v", line, from, to, r)
			}
		}
	}
}

// failingReader fails after its text.
type failingReader struct{ io.Reader }

var errFailing = errors.New("no such process")

func (f failingReader) Read(p []byte) (int, error) {
	n, err := f.Reader.Read(p)
	if errors.Is(err, io.EOF) {
		err = errFailing
	}
	return n, err
}

// TestFindMappingsFails verifies that an error in the middle keeps the ranges before it: the
// process has ended, or its list is too long.
func TestFindMappingsFails(t *testing.T) {
	in := Inode{Dev: blkio.Dev{Major: 8, Minor: 16}, Number: 1311}
	list := "1000-2000 rw-s 00000000 08:10 1311 /a\n2000-3000 rw-s 00000000 08:10 13"
	got, read, err := findMappings(failingReader{strings.NewReader(list)}, in, 0, 1<<20, anyLimit)
	if !errors.Is(err, errFailing) || len(got) != 1 || read != len(list) {
		t.Errorf("%v, %d bytes, %v", got, read, err)
	}
}

// TestFindMappingsOfManyMaps verifies that a process that maps a file very often has a
// bounded number of its mappings paged out, and that the rest is not read.
func TestFindMappingsOfManyMaps(t *testing.T) {
	in := Inode{Dev: blkio.Dev{Major: 8, Minor: 16}, Number: 1311}
	var list strings.Builder
	for i := range 3 * maxRanges {
		fmt.Fprintf(&list, "%x-%x rw-s 00000000 08:10 1311 /a\n", (2*i+1)<<12, (2*i+2)<<12)
	}
	got, read, err := findMappings(strings.NewReader(list.String()), in, 0, 1<<20, anyLimit)
	if err != nil || len(got) != maxRanges || read > list.Len()/2 {
		t.Errorf("%d ranges after %d of %d bytes, %v", len(got), read, list.Len(), err)
	}
}

// TestFindMappingsIgnoresOthers has lines that resemble those of the file: another inode or device, and a path
// or a field that a container has chosen for that.
func TestFindMappingsIgnoresOthers(t *testing.T) {
	in := Inode{Dev: blkio.Dev{Major: 8, Minor: 16}, Number: 1311}
	for _, line := range []string{
		"1000-2000 rw-s 00000000 08:10 13110 /a",
		"1000-2000 rw-s 00000000 08:10 131 /a",
		"1000-2000 rw-s 00000000 08:11 1311 /a",
		"1000-2000 rw-s 00000000 108:10 1311 /a",
		"1000-2000 rw-s 00000000 08:10 0 1311",
		"1000-2000 rw-s 00000000 00:00 0 /x 08:10 1311",
		"1000-2000 rw-s 00000000 08:10",
		"08:10 1311",
		"",
		strings.Repeat("x", 5000) + " rw-s 00000000 08:10 1311 /a", // the second part of a long line
	} {
		got, read, err := findMappings(strings.NewReader(line+"\n"), in, 0, 1<<20, anyLimit)
		if len(got) > 0 || err != nil || read != len(line)+1 {
			t.Errorf("%.80q: %v, %d bytes, %v", line, got, read, err)
		}
	}
}
