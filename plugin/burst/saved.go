package burst

import (
	"slices"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/hostfs"
)

// File is where a book is kept.
type File struct {
	Path string
	Boot string // the ID of the boot; "" if it is unknown
	// Now returns the time of the monotonic clock, which all processes of a boot share.
	Now func() time.Duration
}

// saved is a Book in a file.
type saved struct {
	Boot     string        `json:"boot"`
	At       time.Duration `json:"at"`
	Accounts []credits     `json:"accounts"`
	Limits   []Sample      `json:"limits"`
}

// credits has the credits of an account, in bytes or operations. They are negative for a debt.
type credits struct {
	Account
	Credits float64 `json:"credits"`
}

// Write replaces the book in the file.
func (f *File) Write(b *Book) error {
	s := saved{Boot: f.Boot, At: b.at, Limits: b.last}
	for a, sum := range b.credits {
		s.Accounts = append(s.Accounts, credits{a, sum})
	}
	slices.SortFunc(s.Accounts, func(x, y credits) int { return x.compare(y.Account) })
	return hostfs.WriteJSON(f.Path, &s)
}

// Read returns the book in the file. It is empty without one, and if the file is of another boot: the cgroups and the clock are others. It is
// never nil.
func (f *File) Read() (*Book, error) {
	var s saved
	found, err := hostfs.ReadJSON(f.Path, &s)
	b := &Book{credits: map[Account]float64{}}
	if !found || s.Boot != f.Boot || s.Boot == "" || s.At > f.Now() {
		return b, err
	}
	for _, c := range s.Accounts {
		if c.Key < blkio.NumLimits {
			b.credits[c.Account] += c.Credits
		}
	}
	b.at, b.last = s.At, slices.DeleteFunc(s.Limits, func(m Sample) bool { return m.Key >= blkio.NumLimits })
	return b, err
}

// Limits returns the limits with bursts as of the last call of Tick. They must not be changed.
func (b *Book) Limits() []Sample { return b.last }

// Lower notes that no limit is raised any more.
func (b *Book) Lower() {
	b.last = slices.Clone(b.last)
	for i := range b.last {
		b.last[i].Raised = false
	}
}
