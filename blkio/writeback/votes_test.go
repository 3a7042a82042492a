package writeback

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"testing/quick"
)

// TestVerdictTraces replays traces of kernels. For each round, testdata has the kernel's data of the inode
// before it and after it.
func TestVerdictTraces(t *testing.T) {
	files, err := filepath.Glob("testdata/*.trace")
	if err != nil || len(files) == 0 {
		t.Fatal("no traces", err)
	}
	for _, name := range files {
		t.Run(filepath.Base(name), func(t *testing.T) {
			f, err := os.Open(name)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			rounds := 0
			for lines := bufio.NewScanner(f); lines.Scan(); rounds++ {
				if err := checkRound(lines.Text()); err != nil {
					t.Errorf("round %d, %s: %v", rounds+1, lines.Text(), err)
				}
			}
			if rounds < 20 {
				t.Errorf("%d rounds", rounds)
			}
		})
	}
}

// checkRound reads a line of a trace, as the e2e tests print it (TestVerdict). It has the history, average and
// bandwidth before, then the pages, and 1 if they were another cgroup's. Then it has whether the inode was
// given away, and the history and average after, if it was not.
func checkRound(line string) error {
	var before, after Votes
	var bandwidth, pages uint64
	var foreign, moved int
	if _, err := fmt.Sscanf(line, "%x %d %d %d %d %d %x %d", &before.History, &before.Average, &bandwidth,
		&pages, &foreign, &moved, &after.History, &after.Average); err != nil {
		return err
	}
	got, moves := before.Round(RoundTime(pages, bandwidth), foreign == 1)
	switch {
	case moves != (moved == 1):
		return fmt.Errorf("the inode moves: %v", moves)
	case !moves && got.History != after.History:
		return fmt.Errorf("history %04x", got.History)
	// The bandwidth is estimated anew several times a second.
	case !moves && max(got.Average, after.Average)-min(got.Average, after.Average) > 2+after.Average/4:
		return fmt.Errorf("average %d", got.Average)
	}
	return nil
}

// TestVerdictMissing verifies that a number of foreign rounds of one length moves the inode, after any earlier
// rounds. Alike ones need 9, or fewer if each fills several bits.
func TestVerdictMissing(t *testing.T) {
	few := func(history, average, took uint16) bool {
		took = max(took, 1)
		v := Votes{history, average}
		n := v.Missing(uint64(took))
		moved, at := v, 0
		for done := false; !done; at++ {
			moved, done = moved.Round(uint64(took), true)
		}
		// The shortest rounds after the longest ones do not count until the average
		// has come down, by an eighth each time.
		return n == at && n <= 80
	}
	if err := quick.Check(few, &quick.Config{MaxCount: 100_000}); err != nil {
		t.Error(err)
	}
	for took, want := range map[uint64]int{1: 9, slot16th: 9, slot16th + 1: 5, 3 * slot16th: 3, 5 * slot16th: 2, 100 * slot16th: 2} {
		if got := (Votes{Average: uint16(min(took, 1<<16-1))}).Missing(took); got != want {
			t.Errorf("rounds of %d: %d, want %d", took, got, want)
		}
	}
	if got := (Votes{Average: 1<<16 - 1}).Missing(1); got < 60 || got > 80 {
		t.Errorf("the longest rounds, and then the shortest: %d", got)
	}
}

// TestVerdictOwn verifies that the owner of an inode keeps it if it wins the rounds.
func TestVerdictOwn(t *testing.T) {
	stays := func(history, average uint16, took []uint16) bool {
		v, moves := Votes{history, average}, false
		for i, n := range took {
			before := v.Foreign()
			if v, moves = v.Round(uint64(n), false); moves && before <= threshold || v.Foreign() > before {
				t.Log(i, n, v)
				return false
			}
		}
		return true
	}
	if err := quick.Check(stays, nil); err != nil {
		t.Error(err)
	}
}

// TestVerdictDecided verifies that an inode goes to another cgroup with more than half of the votes.
func TestVerdictDecided(t *testing.T) {
	for _, tt := range []struct {
		history uint16
		foreign int
		want    bool
	}{
		{0, 0, false},
		{0x00ff, 8, false},
		{0x01ff, 9, true},
		{0xaaaa, 8, false},
		{0xffff, 16, true},
	} {
		v := Votes{History: tt.history}
		if v.Foreign() != tt.foreign || v.Decided() != tt.want {
			t.Errorf("%04x: %d foreign votes, decided %v", tt.history, v.Foreign(), v.Decided())
		}
	}
}

// TestRoundTime verifies that a round takes its pages' time at the bandwidth, rounded up.
func TestRoundTime(t *testing.T) {
	for _, tt := range []struct{ pages, bandwidth, want uint64 }{
		{25600, 25600, second},
		{1, 25600, 1},
		{0, 25600, 0},
		{16, 8192, 16},
		{1, 0, second}, // the kernel takes 1 page per second for none
	} {
		if got := RoundTime(tt.pages, tt.bandwidth); got != tt.want {
			t.Errorf("%d pages at %d a second: %d, want %d", tt.pages, tt.bandwidth, got, tt.want)
		}
	}
}
