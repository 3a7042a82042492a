package burst

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// Saved is a Book in a file.
type Saved struct {
	Boot     string        `json:"boot"` // the ID of the boot
	At       time.Duration `json:"at"`   // of the last settlement, on the monotonic clock
	Accounts []Credits     `json:"accounts"`
	Members  []Sample      `json:"members"`
}

// Credits has the credits of an account, in bytes or operations. They are negative for a debt.
type Credits struct {
	Account
	Credits float64 `json:"credits"`
}

// Save encodes the book of a boot.
func (b *Book) Save(boot string) []byte {
	s := Saved{Boot: boot, At: b.at, Members: b.last}
	for a, credits := range b.credits {
		s.Accounts = append(s.Accounts, Credits{a, credits})
	}
	slices.SortFunc(s.Accounts, func(x, y Credits) int { return x.compare(y.Account) })
	data, err := json.Marshal(&s)
	if err != nil {
		panic(err) // numbers and strings only
	}
	return data
}

// Load is the inverse of Save. Of another boot nothing counts, because the cgroups and the clock are others.
func Load(data []byte, boot string) (*Book, error) {
	var s Saved
	if err := json.Unmarshal(data, &s); err != nil {
		return nil, fmt.Errorf("parse bursts: %w", err)
	}
	b := &Book{credits: map[Account]float64{}}
	if s.Boot != boot {
		return b, nil
	}
	for _, c := range s.Accounts {
		if c.Key < blkio.NumLimits {
			b.credits[c.Account] += c.Credits
		}
	}
	b.at, b.last = s.At, slices.DeleteFunc(s.Members, func(m Sample) bool { return m.Key >= blkio.NumLimits })
	return b, nil
}

// Samples returns the limits with bursts as of the last call of Tick. They must not be changed.
func (b *Book) Samples() []Sample { return b.last }

// Lower notes that no limit is raised any more.
func (b *Book) Lower() {
	for i := range b.last {
		b.last[i].Raised = false
	}
}
