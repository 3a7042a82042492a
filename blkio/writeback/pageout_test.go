package writeback

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// TestParseMapping covers the part of a mapping that shows a part of a file.
func TestParseMapping(t *testing.T) {
	page := uint64(os.Getpagesize())
	for _, tt := range []struct {
		name, address, offset string
		from, to              uint64
		want                  addressRange
		ok                    bool
	}{
		{"all", "10000-14000", "0", 0, 4 * page, addressRange{0x10000, 0x4000}, true},
		{"the middle", "10000-14000", "0", page, page, addressRange{0x10000 + page, page}, true},
		{"mapped from behind", "10000-12000", "2000", 0, 100 * page, addressRange{0x10000, 0x2000}, true},
		{"before", "10000-12000", "2000", 0, page - 1, addressRange{}, false},
		{"behind", "10000-12000", "0", 2 * page, 9 * page, addressRange{}, false},
		{"no addresses", "x-y", "0", 0, 1, addressRange{}, false},
		{"upside down", "2000-1000", "0", 0, 1, addressRange{}, false},
	} {
		got, ok := parseMapping(tt.address, tt.offset, tt.from, tt.to)
		if page == 4096 && (got != tt.want || ok != tt.ok) {
			t.Errorf("%s: got %+v, %v", tt.name, got, ok)
		}
	}
}

// anyLimit is more than the lists of these tests are long.
const anyLimit = 4 << 20

// TestFindMappings verifies that a line of any length costs no other, and not its own.
func TestFindMappings(t *testing.T) {
	in := Inode{Dev: blkio.Dev{Major: 8, Minor: 16}, Number: 1311}
	line := func(at int, name string) string {
		return fmt.Sprintf("%x-%x rw-s 00000000 08:10 1311 %s\n", at, at+0x1000, name)
	}
	list := line(0x1000, "/a") + line(0x2000, strings.Repeat("/long", 1<<15)) + "3000-4000 rw-s 00000000 08:10 1312 /other\n" +
		"[nonsense\n" + strings.TrimSuffix(line(0x5000, "/b"), "\n")
	got, read, err := findMappings(strings.NewReader(list), in, 0, 1<<20, anyLimit)
	if err != nil {
		t.Fatal(err)
	}
	want := []addressRange{{0x1000, 0x1000}, {0x2000, 0x1000}, {0x5000, 0x1000}}
	if !slices.Equal(got, want) {
		t.Errorf("got %x, want %x", got, want)
	}
	if read != len(list) {
		t.Errorf("%d of %d bytes counted", read, len(list))
	}
	// The number of bytes read is bounded.
	got, _, err = findMappings(strings.NewReader(strings.Repeat(line(0x1000, "/a"), 1000)), in, 0, 1<<20, 100)
	if err != nil || len(got) > 3 {
		t.Errorf("of 100 bytes: %d, %v", len(got), err)
	}
}

// FuzzFindMappings verifies that a list that a container has written parts of is read to its end, and that
// ranges consist of whole pages.
func FuzzFindMappings(f *testing.F) {
	f.Add("1000-3000 rw-s 00001000 08:10 1311 /a\n", int64(0), int64(1<<20))
	f.Add("x-y rw-s z 08:10 1311", int64(5), int64(4))
	f.Fuzz(func(t *testing.T, list string, from, to int64) {
		in := Inode{Dev: blkio.Dev{Major: 8, Minor: 16}, Number: 1311}
		got, read, err := findMappings(strings.NewReader(list), in, from, to, anyLimit)
		if err != nil || read != len(list) {
			t.Fatalf("read %d of %d bytes: %v", read, len(list), err)
		}
		for _, r := range got {
			if r.length == 0 {
				t.Errorf("an empty range at %x", r.start)
			}
		}
	})
}
