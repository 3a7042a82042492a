package writeback

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio/writeback"
	"github.com/nri-blkio/nri-blkio/test/e2e/cgroup"
)

// film records the owner of a file, and the bytes that are charged to each cgroup, during a scenario in which
// the file should move.
type film struct {
	s      *stage
	file   string // on the host
	writer string // cgroup of the writer, which should become the owner
	others []string
	fair   float64 // bytes per second that the writer is to get
	shots  []shot
	stop   chan struct{}
	done   sync.WaitGroup
}

const shotEvery = 100 * time.Millisecond

type shot struct {
	at         time.Time
	modified   time.Time
	owner      bool // the writer owns the file
	own, other int64
}

// moved is the result of a film. The zero value is a file that did not move.
type moved struct {
	after   time.Duration // since the writer began
	drained time.Duration // from the move until the data that was queued under another owner was on the disk
	itself  float64       // rate of a limited writer on a file of its own, divided by the fair one; 0: not measured
	times   int           // number of moves to the writer
	right   float64       // part of the bytes after that which was charged to the writer
	// isSeparate is true if right is known: the former owner still exists, and writes no other file.
	isSeparate bool
	rate       float64 // of the writer after that, divided by the fair one
}

// String returns "0.3 + 0.1; 99.8; 0.96 (1.00)": the seconds until the move and until the data was on the disk, right in percent
// if it is known, the rate, and the one on a file of its own.
func (m moved) String() string {
	if m.after == 0 {
		return ""
	}
	right := ""
	if m.isSeparate {
		right = fmt.Sprintf("%.1f; ", 100*m.right)
	}
	text := fmt.Sprintf("%.1f + %.1f; %s%.2f", m.after.Seconds(), m.drained.Seconds(), right, m.rate)
	if m.itself > 0 {
		text += fmt.Sprintf(" (%.2f)", m.itself)
	}
	if m.times > 1 {
		text += fmt.Sprintf("; %d times", m.times)
	}
	return text
}

// films begins a film for a writer that should get fair bytes per second. others are the other owners of the
// file, which write no other file.
func (a *account) films(file, writer string, fair float64, others ...string) *account {
	a.s.Helper()
	f := &film{
		s: a.s, file: filepath.Join(a.s.volume.dir, filepath.Base(file)), writer: a.of[writer], fair: fair,
		stop: make(chan struct{}),
	}
	for _, name := range others {
		f.others = append(f.others, a.of[name])
	}
	reader, err := writeback.NewOwnerReader()
	if err != nil {
		a.s.Fatal(err)
	}
	ids, err := cgroup.Dir(f.writer).IDs()
	if err != nil {
		a.s.Fatal(err)
	}
	f.done.Go(func() {
		defer reader.Close()
		for {
			select {
			case <-f.stop:
				return
			case <-time.After(shotEvery):
				f.shoot(reader, ids)
			}
		}
	})
	a.film = f
	return a
}

func (f *film) shoot(reader *writeback.OwnerReader, ids []uint64) {
	file, err := os.Open(f.file)
	if err != nil {
		return // it is not there yet
	}
	defer file.Close()
	o, err := reader.Owner(file)
	if err != nil {
		f.s.Error(err)
		return
	}
	info, err := file.Stat()
	if err != nil {
		f.s.Error(err)
		return
	}
	x := shot{at: time.Now(), modified: info.ModTime(), owner: slices.Contains(ids, o.Cgroup), own: f.written(f.writer)}
	for _, dir := range f.others {
		x.other += f.written(dir)
	}
	f.shots = append(f.shots, x)
}

func (f *film) written(dir string) int64 {
	n, err := f.s.volume.written(dir)
	if err != nil {
		f.s.Error(err)
	}
	return n
}

// end ends the film and returns its result.
func (f *film) end() moved {
	close(f.stop)
	f.done.Wait()
	if len(f.shots) == 0 {
		return moved{}
	}
	// The start of a writer takes seconds, and so does the report of its end.
	begins, ends := -1, 0
	for k := 1; k < len(f.shots); k++ {
		if begins < 0 && !f.shots[k].modified.Equal(f.shots[0].modified) {
			begins = k - 1
		}
		if f.shots[k].own != f.shots[k-1].own || f.shots[k].other != f.shots[k-1].other {
			ends = k
		}
	}
	begins = max(begins, 0)
	if ends < begins {
		return moved{}
	}
	shots := f.shots[begins : ends+1]
	first, last := shots[0], shots[len(shots)-1]
	// The last time that it became the writer's: it is so to the end.
	i := len(shots)
	for i > 0 && shots[i-1].owner {
		i--
	}
	if i == len(shots) {
		return moved{}
	}
	out := moved{after: max(shots[i].at.Sub(first.at), shotEvery)}
	for k := 1; k < len(shots); k++ {
		if shots[k].owner && !shots[k-1].owner {
			out.times++
		}
	}
	quiet := f.drained(shots, i)
	from := shots[quiet]
	out.drained = from.at.Sub(shots[i].at)
	own, other := float64(last.own-from.own), float64(last.other-from.other)
	out.isSeparate = len(f.others) > 0
	if own+other > 0 {
		out.right = own / (own + other)
	}
	if d := last.at.Sub(from.at).Seconds(); d > 0 {
		out.rate = own / d / f.fair
	}
	return out
}

// drained returns the index of the shot, after a move, at which the data that was queued before is on the disk:
// nothing of the others was written for a second. If the others write other files as well, it is the first shot
// with writes of the writer, which waits for the data that it has synced before.
func (f *film) drained(shots []shot, moved int) int {
	at := moved
	if len(f.others) == 0 {
		for at+1 < len(shots) && shots[at+1].own == shots[moved].own {
			at++
		}
		return at
	}
	for k := moved; k < len(shots) && shots[k].at.Sub(shots[at].at) <= time.Second; k++ {
		if shots[k].other != shots[at].other {
			at = k
		}
	}
	return at
}
