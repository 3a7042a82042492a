package writeback

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio/writeback"
	"github.com/nri-blkio/nri-blkio/test/e2e/lab"
)

// TestVerdict verifies that the verdict of each round of writeback, as computed from the kernel's state, is the
// one of the kernel. The test prints lines in the form of the traces in blkio/writeback/testdata.
func TestVerdict(t *testing.T) {
	reader, err := writeback.NewOwnerReader()
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	for _, fs := range filesystemsWithOwners {
		t.Run(fs, func(t *testing.T) {
			a, b := lab.NewWriter(t, "a"), lab.NewWriter(t, "b")
			file := lab.File(t, fs, "f")
			b.Writes(file, 256, "4k", "conv=notrunc,fsync")
			f, err := os.Open(file)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			read := func() writeback.Owner {
				o, err := reader.Owner(f)
				if err != nil {
					t.Fatal(err)
				}
				return o
			}
			v := verdicts{T: t, file: file, a: a, b: b, owner: read}
			for round, pages := range []int{8, 16, 1, 8, 8, 4, 32, 1, 16, 8, 8, 64, 8, 16, 8, 8, 8, 16, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8} {
				if read().Cgroup == a.ID {
					break
				}
				// First one of the owner in three, later none.
				v.round(pages, round >= 12 || round%3 != 2)
			}
			t.Logf("trace of %s:\n%s", fs, strings.Join(v.trace, "\n"))
			if read().Cgroup != a.ID {
				t.Error("the file was not moved to the other writer: the case cannot show anything")
			}
			if v.foreseen < len(v.trace) {
				t.Errorf("%d of %d rounds had the computed verdict, want all", v.foreseen, len(v.trace))
			}
		})
	}
}

// verdicts are rounds of writeback of a file that b owns.
type verdicts struct {
	*testing.T
	file     string
	a, b     lab.Writer
	owner    func() writeback.Owner
	trace    []string
	foreseen int // rounds whose computed verdict was the kernel's
}

// round has pages of the file written out that were made dirty by a if it is foreign, and otherwise
// by b.
func (v *verdicts) round(pages int, isForeign bool) {
	v.Helper()
	before := v.owner()
	_, moves := before.Round(writeback.RoundTime(uint64(pages), before.Bandwidth), isForeign)
	by, foreign := v.b, 0
	if isForeign {
		by, foreign = v.a, 1
		v.a.Writes(v.file, pages, "4k", "oflag=append", "conv=notrunc,fsync")
	} else {
		v.b.Writes(v.file, pages, "4k", "conv=notrunc,fsync")
	}
	after, moved := v.owner(), 0
	for end := time.Now().Add(20 * time.Second); moves && after.Cgroup != by.ID && time.Now().Before(end); after = v.owner() {
		time.Sleep(10 * time.Millisecond) // the kernel does it in the background
	}
	if after.Cgroup == v.a.ID {
		moved = 1
	}
	v.trace = append(v.trace, fmt.Sprintf("%04x %d %d %d %d %d %04x %d", before.History, before.Average, before.Bandwidth, pages, foreign, moved, after.History, after.Average))
	if moves == (moved == 1) {
		v.foreseen++
	}
}
