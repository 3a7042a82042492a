package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio/writeback"
)

// TestVerdict: whether a round of writeback moves a file is foreseen from what the
// kernel has with it. The lines that it prints are of the form that the traces in
// blkio/writeback/testdata have.
func TestVerdict(t *testing.T) {
	reader, err := writeback.NewOwnerReader()
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	for _, fs := range filesystemsWithOwners {
		t.Run(fs, func(t *testing.T) {
			a, b := newWriter(t, "a"), newWriter(t, "b")
			file := testFile(t, fs, "f")
			b.writes(file, 256, "4k", "conv=notrunc,fsync")
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
			var trace []string
			foreseen := 0
			for round, pages := range []int{8, 16, 1, 8, 8, 4, 32, 1, 16, 8, 8, 64, 8, 16, 8, 8, 8, 16, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8} {
				// First one of the owner in three, later none.
				who, foreign := a, 1
				if read().Cgroup == a.id {
					break
				}
				if round < 12 && round%3 == 2 {
					who, foreign = b, 0
				}
				before := read()
				_, moves := before.Round(writeback.RoundTime(uint64(pages), before.Bandwidth), foreign == 1)
				if foreign == 1 {
					a.writes(file, pages, "4k", "oflag=append", "conv=notrunc,fsync")
				} else {
					b.writes(file, pages, "4k", "conv=notrunc,fsync")
				}
				after, moved := read(), 0
				for end := time.Now().Add(2 * time.Second); moves && after.Cgroup != who.id && time.Now().Before(end); after = read() {
					time.Sleep(10 * time.Millisecond) // the kernel does it in the background
				}
				if after.Cgroup == a.id {
					moved = 1
				}
				trace = append(trace, fmt.Sprintf("%04x %d %d %d %d %d %04x %d", before.History, before.Average, before.Bandwidth, pages, foreign, moved, after.History, after.Average))
				if moves == (moved == 1) {
					foreseen++
				}
			}
			t.Logf("trace of %s:\n%s", fs, strings.Join(trace, "\n"))
			if read().Cgroup != a.id {
				t.Error("it was not moved: this shows nothing")
			}
			if foreseen < len(trace) {
				t.Errorf("%d of %d rounds went as foreseen", foreseen, len(trace))
			}
		})
	}
}
