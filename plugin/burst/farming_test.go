package burst

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// world is a node on which an author of pods looks for ways to use more than the credits allow. It counts what each cgroup really uses. Tick
// sees less, because cgroups come and go between two calls.
type world struct {
	t       *testing.T
	r       *rand.Rand
	book    *Book
	now     time.Duration // of the monotonic clock
	boot    int
	pods    []*farmPod
	made    int
	raised  map[Place]bool // in force in the kernel
	owners  map[Account]*truth
	room    float64
	onTime  bool
	file    File
	latency float64 // seconds after the first one of the longest interval so far
}

// farmPod is a cgroup.
type farmPod struct {
	Member
	used   float64 // in the interval
	above  float64 // of it
	isLong bool    // it was there for the whole interval
}

// truth is what an owner may have and has.
type truth struct {
	level    float64 // of a bucket that is filled by what one pod leaves of its limit
	capacity float64
	above    float64 // in all
	deepest  float64 // the lowest level
}

func newWorld(t *testing.T, seed uint64, onTime bool) *world {
	w := &world{
		t: t, r: rand.New(rand.NewPCG(seed, 1)), book: &Book{}, now: time.Hour, raised: map[Place]bool{}, owners: map[Account]*truth{},
		room: 200 * mebi, onTime: onTime, file: File{Path: filepath.Join(t.TempDir(), "bursts.json"), Boot: "boot 0"},
	}
	w.file.Now = func() time.Duration { return w.now }
	return w
}

func (w *world) chance(one int) bool { return w.r.IntN(one) == 0 }

// add makes a cgroup. An owner has pods of one kind.
func (w *world) add(owner int) {
	w.made++
	m := pod(fmt.Sprint(owner), fmt.Sprintf("c%d", w.made))
	m.Limit = blkio.Amount(1+owner%4) * 10 * mebi
	m.Burst = blkio.Burst{Rate: m.Limit + blkio.Amount(1+owner%3)*40*mebi, Seconds: uint32(1 + owner%60)}
	w.pods = append(w.pods, &farmPod{Member: m})
}

func (w *world) truthOf(m *Member) *truth {
	o := w.owners[m.Account]
	if o == nil {
		o = &truth{}
		w.owners[m.Account] = o
	}
	o.capacity = m.above() * float64(m.Burst.Seconds)
	return o
}

// run has a cgroup use the disk for a part of an interval.
func (w *world) run(p *farmPod, d float64) {
	may := float64(p.Limit)
	if w.raised[p.place()] {
		may = float64(p.Burst.Rate)
	}
	demand := may
	switch w.r.IntN(3) {
	case 0:
		demand = 0
	case 1:
		demand = w.r.Float64() * may
	}
	used := float64(uint64(demand * d))
	p.Used, p.used, p.above = p.Used+uint64(used), p.used+used, p.above+max(0, used-float64(p.Limit)*d)
}

// attack changes the pods in the middle of an interval: restarts, more or fewer replicas, another owner.
func (w *world) attack() {
	for range w.r.IntN(4) {
		switch i := w.r.IntN(len(w.pods) + 1); {
		case i == len(w.pods) || len(w.pods) < 20 && w.chance(3):
			w.add(w.r.IntN(8))
		case w.chance(2): // a container ends, and another one begins
			owner := 0
			_, _ = fmt.Sscan(w.pods[i].Owner, &owner)
			w.end(i)
			w.add(owner)
		case w.chance(2): // the same, with another owner
			w.end(i)
			w.add(w.r.IntN(1000))
		default:
			w.end(i)
		}
	}
}

// end removes a cgroup. What it has used counts, although no call of Tick sees it.
func (w *world) end(i int) {
	p := w.pods[i]
	o := w.truthOf(&p.Member)
	o.level -= p.above
	o.above += p.above
	w.pods = append(w.pods[:i:i], w.pods[i+1:]...)
}

// interval is the time from one call of Tick to the next.
func (w *world) interval() {
	d := 0.1 + 0.9*w.r.Float64()
	if !w.onTime && w.chance(10) {
		d *= 30 // the plugin was stopped, or the node was busy
	}
	w.latency = max(w.latency, d-1)
	for _, p := range w.pods {
		p.used, p.above, p.isLong = 0, 0, true
		w.run(p, d/2)
	}
	if w.chance(3) {
		w.attack()
	}
	for _, p := range w.pods {
		w.run(p, d/2)
	}
	if w.onTime { // the kernel's rate is even in an interval, or the limit would not be one per second
		for _, p := range w.pods {
			p.above = max(0, p.used-float64(p.Limit)*d)
		}
	}
	w.settle(d)
	w.now += time.Duration(d * float64(time.Second))
}

// settle notes what the owners got, by an account of its own for each.
func (w *world) settle(d float64) {
	most, used := map[*truth]float64{}, map[*truth]float64{}
	for _, p := range w.pods {
		o := w.truthOf(&p.Member)
		if used[o] += p.used; p.isLong {
			most[o] = max(most[o], float64(p.Limit)*d)
		}
		o.level -= p.above
		o.above += p.above
	}
	for _, o := range w.owners {
		if o.deepest = min(o.deepest, o.level); most[o] > used[o] {
			o.level = min(o.level+most[o]-used[o], o.capacity)
		}
	}
}

// tick is what the plugin does each second.
func (w *world) tick() {
	members := make([]Member, 0, len(w.pods))
	for _, p := range w.pods {
		members = append(members, p.Member)
	}
	sum := 0.0
	raised := map[Place]bool{}
	for _, place := range w.book.Tick(w.now, func(blkio.Address) blkio.Amount { return blkio.Amount(w.room) }, members) {
		raised[place] = true
	}
	for _, p := range w.pods {
		if raised[p.place()] {
			sum += p.Member.above()
		}
	}
	if sum > w.room {
		w.t.Fatalf("bursts of %v MiB/s in force, the policy leaves %v", sum/mebi, w.room/mebi)
	}
	w.raised = raised
}

// restart has the plugin or the node begin again, in order or not.
func (w *world) restart() {
	if err := w.file.Write(w.book); err != nil {
		w.t.Fatal(err)
	}
	if w.chance(4) {
		w.boot++
		w.now, w.pods, w.raised = time.Duration(w.r.IntN(1e9)), nil, map[Place]bool{}
		for _, o := range w.owners { // a node that has restarted leaves nothing
			o.level = min(o.level, 0)
		}
	} else if w.chance(2) {
		w.book.Lower()
		w.raised = map[Place]bool{}
		if err := w.file.Write(w.book); err != nil {
			w.t.Fatal(err)
		}
	}
	w.file.Boot = fmt.Sprint("boot ", w.boot)
	book, err := w.file.Read()
	if err != nil {
		w.t.Fatal(err)
	}
	w.book = book
}

// TestFarming verifies that an owner uses no more above its limits than one of its pods has left unused before, and at most a full burst.
// Restarts, removals, other names and more replicas change nothing. With a call of Tick each second that is exact to the byte. After a late call the account can be below zero, and has to grow back before the next burst. Steps of the wall clock
// do not matter, because it is not an input.
func TestFarming(t *testing.T) {
	total := 0.0
	for seed := range uint64(50) {
		w := newWorld(t, seed, seed%2 == 0)
		for range 400 {
			w.interval()
			if w.chance(50) {
				w.restart()
			}
			w.tick()
		}
		for a, o := range w.owners {
			least := -1.0 // of rounding
			if !w.onTime {
				least -= (w.latency + 1) * w.room
			}
			if total += o.above; o.deepest < least {
				t.Fatalf("seed %d, owner %s: %v MiB more than one burst", seed, a.Owner, -o.deepest/mebi)
			}
		}
	}
	if total < 1e4*mebi {
		t.Errorf("only %v MiB above limits in all: nothing is tested", total/mebi)
	}
}

// TestCrashLoop verifies that a container that restarts each second, or never lives from one call to the next, gets nothing above its
// limit, although it writes all the time, and its owner had credits before.
func TestCrashLoop(t *testing.T) {
	for _, life := range []time.Duration{300 * time.Millisecond, time.Second, 1500 * time.Millisecond} {
		n := newNode(t, pod("web", "c0"))
		n.seconds(5)
		had := n.credits("web")
		for i := range 1000 {
			next := pod("web", fmt.Sprint("c", i/2+1))
			if life >= time.Second {
				next = pod("web", fmt.Sprint("c", time.Duration(i)*time.Second/life+1))
			}
			if n.pods[0].Cgroup != next.Cgroup {
				n.pods[0] = &next
			}
			n.tick(min(life, time.Second), rate)
		}
		if n.above > had*mebi {
			t.Errorf("life of %v: %v MiB above the limit, %v were there", life, n.above/mebi, had)
		}
	}
}
