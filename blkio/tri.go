package blkio

// Tri is the result of a probe. Its zero value is Unknown.
type Tri uint8

// The answers of a probe.
const (
	Unknown Tri = iota
	No
	Yes
)

// String returns "unknown", "no" or "yes".
func (t Tri) String() string { return [...]string{"unknown", "no", "yes"}[t] }

// MarshalText encodes the value as "yes", "no" or "unknown".
func (t Tri) MarshalText() ([]byte, error) { return []byte(t.String()), nil }
