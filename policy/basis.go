package policy

import (
	"slices"
	"strconv"
)

// Basis is the reason why a value counts.
type Basis uint8

// The bases.
const (
	Asked     Basis = iota // it is asked for: by an annotation, a claim, a class or a rule of the policy
	Standing               // it was granted before, and what asked for it is refused or unknown now
	Carried                // pod-total asks for it, and a container that has ended may have had its disk
	Room                   // a budget has no room for more
	LentLimit              // a claim of a pod that this one controls asks for it, see Lent
)

// bases are the names of the bases in records. Most values are asked for, so that has none.
var bases = [...]string{Asked: "", Standing: "standing", Carried: "carried", Room: "room", LentLimit: "lent"}

// String returns the name of the basis.
func (b Basis) String() string {
	if int(b) >= len(bases) {
		return strconv.Itoa(int(b))
	}
	return bases[b]
}

// ParseBasis is the inverse of String.
func ParseBasis(s string) (Basis, bool) {
	i := slices.Index(bases[:], s)
	return Basis(max(i, 0)), i >= 0
}
