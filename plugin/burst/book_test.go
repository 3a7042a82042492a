package burst

import (
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/nri-blkio/nri-blkio/blkio"
)

const (
	mebi  = 1 << 20
	limit = 20 * mebi
	rate  = 100 * mebi
)

var sda = blkio.Address{Key: blkio.Wbps, Dev: blkio.Dev{Major: 8}} // constant

// all leaves each burst its room.
func all(blkio.Address) blkio.Amount { return blkio.Max }

// pod returns a member with a burst of 80 MiB/s for 60 s.
func pod(owner, cgroup string) Member {
	return Member{
		Account: Account{Namespace: "a", Owner: owner, Address: sda}, Cgroup: cgroup,
		Limit: limit, Burst: blkio.Burst{Rate: rate, Seconds: 60},
	}
}

// node is a book with cgroups that use what they are given.
type node struct {
	Book
	t      *testing.T
	now    time.Duration
	room   func(blkio.Address) blkio.Amount
	pods   []*Member
	raised map[Place]bool
	above  float64 // use above the limits
}

func newNode(t *testing.T, pods ...Member) *node {
	t.Helper()
	n := &node{t: t, now: time.Hour, room: all}
	for _, p := range pods {
		n.pods = append(n.pods, &p)
	}
	n.tick(0)
	return n
}

// tick has each pod use as much of a rate as it may for d, and calls Tick.
func (n *node) tick(d time.Duration, demands ...float64) {
	n.t.Helper()
	n.now += d
	members := make([]Member, 0, len(n.pods))
	for i, p := range n.pods {
		may := float64(p.Limit)
		if n.raised[p.place()] {
			may = float64(p.Burst.Rate)
		}
		if i < len(demands) {
			used := min(may, demands[i]) * d.Seconds()
			n.above += max(0, used-float64(p.Limit)*d.Seconds())
			p.Used += uint64(used)
		}
		members = append(members, *p)
	}
	n.raised = map[Place]bool{}
	for _, p := range n.Tick(n.now, n.room, members) {
		n.raised[p] = true
	}
}

// seconds calls tick each second.
func (n *node) seconds(count int, demands ...float64) {
	n.t.Helper()
	for range count {
		n.tick(time.Second, demands...)
	}
}

func (n *node) credits(owner string) float64 {
	return n.Book.credits[Account{Namespace: "a", Owner: owner, Address: sda}] / mebi
}

// TestBurst verifies the whole of a burst: credits start empty, grow while the limit is unused, last for the duration of the burst, and
// end with the last second for which they are enough.
func TestBurst(t *testing.T) {
	n := newNode(t, pod("web", "c1"))
	if n.seconds(3, 0); n.raised[n.pods[0].place()] || n.credits("web") != 60 {
		t.Errorf("raised with %v MiB of credits, want them to be 60", n.credits("web"))
	}
	if n.seconds(1, 0); !n.raised[n.pods[0].place()] {
		t.Error("not raised with credits for a second")
	}
	if n.seconds(300, 0); n.credits("web") != 4800 {
		t.Errorf("%v MiB of credits, want those of one burst", n.credits("web"))
	}
	for second := range 60 {
		if !n.raised[n.pods[0].place()] {
			t.Fatalf("not raised in second %d", second)
		}
		n.seconds(1, rate)
	}
	if n.raised[n.pods[0].place()] || n.credits("web") != 0 || n.above != 4800*mebi {
		t.Errorf("after the burst: raised %v, %v MiB of credits, %v MiB above the limit", n.raised, n.credits("web"), n.above/mebi)
	}
	if n.seconds(100, rate); n.above != 4800*mebi {
		t.Errorf("%v MiB above the limit without credits", n.above/mebi)
	}
}

// TestReplicas verifies that more pods of an owner have the credits of one.
func TestReplicas(t *testing.T) {
	n := newNode(t, pod("web", "c1"), pod("web", "c2"), pod("web", "c3"), pod("", "c4"))
	n.seconds(10, 5*mebi, 5*mebi, 5*mebi)
	if got := n.credits("web"); got != 50 {
		t.Errorf("%v MiB of credits, want what all leave of one limit", got)
	}
	if n.seconds(10, 20*mebi, 20*mebi, 0); n.credits("web") != 50 {
		t.Errorf("%v MiB of credits: an idle pod of a busy owner adds some", n.credits("web"))
	}
	n.seconds(10)
	if len(n.raised) != 4 { // 250 MiB are enough for three pods of it for a second
		t.Errorf("raised %v", n.raised)
	}
	if n.seconds(1, rate, rate, rate); n.credits("web") != 10 || n.raised[n.pods[0].place()] {
		t.Errorf("%v MiB of credits after a second", n.credits("web"))
	}
}

// TestRoom verifies that the bursts on a disk take no more than the policy leaves, and that an owner that needs its burst is before one that
// does not.
func TestRoom(t *testing.T) {
	n := newNode(t, pod("web", "c1"), pod("db", "c2"), pod("job", "c3"))
	n.room = func(blkio.Address) blkio.Amount { return 100 * mebi }
	n.seconds(240)
	for i := range n.pods {
		demands := make([]float64, len(n.pods))
		demands[i] = rate
		if n.seconds(2, demands...); !n.raised[n.pods[i].place()] || len(n.raised) != 1 {
			t.Errorf("pod %d writes: raised %v", i, n.raised)
		}
	}
	n.room = func(blkio.Address) blkio.Amount { return blkio.Unset }
	if n.seconds(1); len(n.raised) != 0 {
		t.Errorf("raised %v without room", n.raised)
	}
}

// TestLate verifies that a late call makes a debt, and that a use in a long interval counts as one at the whole rate.
func TestLate(t *testing.T) {
	n := newNode(t, pod("web", "c1"))
	n.seconds(4)
	n.tick(3*time.Second, rate)
	if got := n.credits("web"); got != 80-240 {
		t.Errorf("%v MiB of credits", got)
	}
	if n.seconds(8); n.credits("web") != 0 || len(n.raised) != 0 {
		t.Errorf("%v MiB of credits, raised %v: the debt was not taken from the next ones", n.credits("web"), n.raised)
	}
	n.seconds(10)
	n.tick(time.Minute, 10*mebi) // 600 MiB, as in six seconds at the whole rate
	if got := n.credits("web"); got != 200-480 {
		t.Errorf("%v MiB of credits after a long interval", got)
	}
}

// TestGone verifies that a cgroup that has disappeared counts as one that has used all that it could, and that accounts stay without
// cgroups.
func TestGone(t *testing.T) {
	n := newNode(t, pod("web", "c1"), pod("db", "c2"))
	n.seconds(10)
	n.pods = n.pods[:1]
	if n.seconds(1); n.credits("db") != 200-80 || n.credits("web") != 220 {
		t.Errorf("%v and %v MiB of credits", n.credits("db"), n.credits("web"))
	}
	n.seconds(1000)
	again := pod("db", "c3")
	n.pods = append(n.pods, &again)
	if n.seconds(1); n.credits("db") != 120 {
		t.Errorf("%v MiB of credits of a pod that was made again", n.credits("db"))
	}
	n.pods[1].Used = 50 // and its counters start again
	n.seconds(1)
	n.pods[1].Used = 0
	if n.seconds(1); math.Round(n.credits("db")) != 140-80 {
		t.Errorf("%v MiB of credits with smaller counters", n.credits("db"))
	}
}

// TestBound verifies that accounts without a cgroup are bounded, and that a debt is none that is forgotten.
func TestBound(t *testing.T) {
	var b Book
	b.credits = map[Account]float64{}
	for i := range 3 * maxIdle {
		b.credits[Account{Namespace: "a", Owner: string(rune('A' + i)), Address: sda}] = float64(i - 2*maxIdle)
		b.credits[Account{Namespace: "b", Owner: string(rune('A' + i)), Address: sda}] = float64(i + 1)
	}
	debt := func(namespace string) (n int, sum float64) {
		for a, credits := range b.credits {
			if a.Namespace == namespace {
				n, sum = n+1, sum+min(credits, 0)
			}
		}
		return n, sum
	}
	_, before := debt("a")
	b.Tick(time.Second, all, nil)
	if n, sum := debt("a"); n != maxIdle+1 || sum != before {
		t.Errorf("%d accounts with a debt of %v, before %v", n, sum, before)
	}
	if n, _ := debt("b"); n != maxIdle || b.credits[Account{Namespace: "b", Owner: "A", Address: sda}] != 1 {
		t.Errorf("%d accounts of the other namespace", n)
	}
}

// TestSaved verifies that a book is the same from its file, and empty in another boot.
func TestSaved(t *testing.T) {
	n := newNode(t, pod("web", "c1"), pod("", "c2"))
	n.seconds(10, 0, 1)
	f := File{Path: filepath.Join(t.TempDir(), "bursts.json"), Boot: "boot 1", Now: func() time.Duration { return n.now }}
	if b, err := f.Read(); err != nil || len(b.credits) != 0 {
		t.Errorf("%v: %+v without a file", err, b)
	}
	if err := f.Write(&n.Book); err != nil {
		t.Fatal(err)
	}
	got, err := f.Read()
	if diff := cmp.Diff(n.Book, *got, cmp.AllowUnexported(Book{}), cmpopts.IgnoreUnexported(Sample{})); diff != "" || err != nil {
		t.Errorf("%v, -want +got:\n%s", err, diff)
	}
	if got.Lower(); got.Limits()[0].Raised || len(got.Limits()) != 2 {
		t.Errorf("%+v", got.Limits())
	}
	later := f
	later.Now = func() time.Duration { return n.now - 1 }
	for _, f := range []File{{f.Path, "boot 2", f.Now}, {f.Path, "", f.Now}, later} {
		if other, err := f.Read(); err != nil || len(other.credits) != 0 || other.last != nil {
			t.Errorf("%v: %+v in another boot", err, other)
		}
	}
	for text, isError := range map[string]bool{"{": true, `{"boot":"boot 1","accounts":[{"Key":200,"credits":1}],"limits":[{"Key":200}]}`: false} {
		if err := os.WriteFile(f.Path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if odd, err := f.Read(); (err != nil) != isError || len(odd.credits) != 0 || len(odd.last) != 0 {
			t.Errorf("%s: %v, %+v", text, err, odd)
		}
	}
}

// TestOrder verifies that the order of members decides nothing.
func TestOrder(t *testing.T) {
	a, b := Account{Namespace: "a"}, Account{Namespace: "a", Scope: "pod-total"}
	if a.compare(b) >= 0 || b.compare(a) <= 0 || a.compare(a) != 0 {
		t.Error("accounts have no order")
	}
	if math.Signbit(float64(a.compare(Account{Namespace: "b"}))) == false {
		t.Error("namespaces have no order")
	}
}
