package burst

import (
	"cmp"
	"slices"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// Account identifies credits.
type Account struct {
	Namespace string `json:"namespace"`
	Owner     string `json:"owner,omitempty"` // "" for all pods of the namespace whose owner is unknown
	Scope     string `json:"scope,omitempty"` // annotation.ScopeTotal for the limits of pods as a whole
	blkio.Address
}

func (a Account) compare(b Account) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Owner, b.Owner), cmp.Compare(a.Scope, b.Scope), a.Compare(b.Address))
}

// Member is a limit with a burst of one cgroup.
type Member struct {
	Account
	Pod    string       `json:"-"`      // for the caller of Book.Tick
	Cgroup string       `json:"cgroup"` // below the cgroup root
	Limit  blkio.Amount `json:"limit"`
	Burst  blkio.Burst  `json:"burst"`
	Used   uint64       `json:"used"` // since the cgroup was made, in bytes or operations
}

func (m *Member) above() float64 { return float64(m.Burst.Rate) - float64(m.Limit) }

// Whole returns the credits of a whole burst.
func (m *Member) Whole() float64 { return m.above() * float64(m.Burst.Seconds) }

// Place is a value of a cgroup.
type Place struct {
	Cgroup string
	blkio.Address
}

func (m *Member) place() Place { return Place{m.Cgroup, m.Address} }

// Sample is a member at the last call of Tick.
type Sample struct {
	Member
	Raised  bool    `json:"raised,omitempty"`
	Credits float64 `json:"credits"` // of the account; for readers
	rate    float64 // the use per second before
}

// Book has the credits of a node. The zero value has none. It is not safe for concurrent use.
type Book struct {
	at      time.Duration
	credits map[Account]float64
	last    []Sample
}

const (
	// maxInterval is the longest time between two calls of Tick in which a use counts as even.
	maxInterval = 5 * time.Second
	// maxIdle is the number of accounts without a cgroup that a namespace can have.
	maxIdle = 256
)

// Tick settles the accounts for the time since the last call, and returns the limits to raise until the next one. now is the
// time of the monotonic clock, and room returns what bursts of a key may take on a disk.
func (b *Book) Tick(now time.Duration, room func(blkio.Address) blkio.Amount, members []Member) []Place {
	if b.credits == nil {
		b.credits = map[Account]float64{}
	}
	samples := b.settle(now, members)
	b.forget(samples)
	b.at, b.last = now, samples
	return b.raise(room)
}

// flow is what happens to an account in an interval.
type flow struct{ most, used, above float64 }

// settle adds the credits of an interval, and takes what was spent.
func (b *Book) settle(now time.Duration, members []Member) []Sample {
	passed := max(now-b.at, 0)
	d, isLong := passed.Seconds(), passed > maxInterval
	before := make(map[Place]*Sample, len(b.last))
	for i := range b.last {
		before[b.last[i].place()] = &b.last[i]
	}
	flows := map[Account]flow{}
	add := func(a Account, most, used, above float64) {
		f := flows[a]
		flows[a] = flow{max(f.most, most), f.used + used, f.above + above}
	}
	out := make([]Sample, 0, len(members))
	for _, m := range members {
		s := Sample{Member: m}
		if old := before[m.place()]; old == nil || m.Used < old.Used { // a new cgroup
			add(m.Account, 0, float64(m.Used), 0)
		} else {
			delete(before, m.place())
			used, most := float64(m.Used-old.Used), 0.0
			if !isLong && old.Account == m.Account {
				most = float64(min(old.Limit, m.Limit)) * d
			}
			add(old.Account, most, used, old.spent(used, d, isLong))
			s.rate = used / max(d, 1e-9)
		}
		out = append(out, s)
	}
	for _, gone := range before {
		used := gone.most() * d
		add(gone.Account, 0, used, gone.spent(used, d, isLong))
	}
	for a, f := range flows {
		b.credits[a] += max(0, f.most-f.used) - f.above
	}
	return out
}

func (s *Sample) most() float64 {
	if s.Raised {
		return float64(s.Burst.Rate)
	}
	return float64(s.Limit)
}

// spent returns how much of a use in d seconds was above the limit. In a long interval it may have been uneven: for a while at the whole rate
// of the burst.
func (s *Sample) spent(used, d float64, isLong bool) float64 {
	if isLong && s.Raised {
		return min(used, s.most()*d) * s.above() / s.most()
	}
	return max(0, used-float64(s.Limit)*d)
}

// forget bounds credits: those of an account to the largest burst of its cgroups, and the accounts without a cgroup.
func (b *Book) forget(samples []Sample) {
	capacity := map[Account]float64{}
	for i := range samples {
		m := &samples[i].Member
		capacity[m.Account] = max(capacity[m.Account], m.Whole())
	}
	idle := map[string][]Account{}
	for a, credits := range b.credits {
		switch most, isUsed := capacity[a]; {
		case isUsed:
			b.credits[a] = min(credits, most)
		case credits == 0:
			delete(b.credits, a)
		default:
			idle[a.Namespace] = append(idle[a.Namespace], a)
		}
	}
	for _, accounts := range idle {
		b.bound(accounts)
	}
}

// bound bounds the accounts of a namespace without a cgroup. A debt that has no room is one of the namespace.
func (b *Book) bound(accounts []Account) {
	slices.SortFunc(accounts, func(x, y Account) int { return cmp.Or(cmp.Compare(b.credits[x], b.credits[y]), x.compare(y)) })
	for i := len(accounts) - 1; i >= maxIdle; i-- {
		a, credits := accounts[i], b.credits[accounts[i]]
		delete(b.credits, a)
		if a.Owner = ""; credits < 0 {
			b.credits[a] += credits
		}
	}
}

// need is how much a limit with a burst needs it.
func (s *Sample) need() int {
	switch limit := float64(s.Limit); {
	case s.rate > limit:
		return 2 // its burst is in use
	case s.rate >= limit/2:
		return 1
	}
	return 0
}

// raise selects the limits to raise. An account needs credits for a second, so that it has no debt at the next call.
func (b *Book) raise(room func(blkio.Address) blkio.Amount) (out []Place) {
	left, taken := map[Account]float64{}, map[blkio.Address]float64{}
	for i := range b.last {
		s := &b.last[i]
		s.Raised, s.Credits = false, b.credits[s.Account]
		left[s.Account] = s.Credits
	}
	slices.SortFunc(b.last, func(x, y Sample) int {
		return cmp.Or(cmp.Compare(y.need(), x.need()), cmp.Compare(y.Credits, x.Credits), x.compare(y.Account), cmp.Compare(x.Cgroup, y.Cgroup))
	})
	for i := range b.last {
		s := &b.last[i]
		most, above := room(s.Address), s.above()
		if above <= 0 || left[s.Account] < above || most != blkio.Max && taken[s.Address]+above > float64(most) {
			continue
		}
		s.Raised = true
		left[s.Account] -= above
		taken[s.Address] += above
		out = append(out, s.place())
	}
	return out
}
