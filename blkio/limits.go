package blkio

import "strings"

// Limits has the four values of one device, indexed by Key. The zero value sets nothing. Limits are comparable
// with ==.
type Limits [NumLimits]Amount

// String formats the keys that are set, "rbps=max wbps=1048576".
func (l Limits) String() string {
	var b strings.Builder
	for k, r := range l {
		if r == Unset {
			continue
		}
		if b.Len() > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(Key(k).String())
		b.WriteByte('=')
		b.WriteString(r.String())
	}
	return b.String()
}

// IsZero reports whether no key is set.
func (l Limits) IsZero() bool { return l == Limits{} }

// DevLimits has the limits of one device: one line of io.max.
type DevLimits struct {
	Dev    Dev
	Limits Limits
}

// String formats a write to io.max, "8:16 rbps=max wbps=1048576".
func (d DevLimits) String() string { return d.Dev.String() + " " + d.Limits.String() }
