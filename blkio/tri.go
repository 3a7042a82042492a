package blkio

// Tri is the answer of a probe. The zero value is that there is none.
type Tri uint8

// The answers of a probe.
const (
	Unknown Tri = iota
	No
	Yes
)

// String returns "unknown", "no" or "yes".
func (t Tri) String() string { return [...]string{"unknown", "no", "yes"}[t] }

// MarshalText makes JSON say "yes", not 2.
func (t Tri) MarshalText() ([]byte, error) { return []byte(t.String()), nil }
