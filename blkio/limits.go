package blkio

import (
	"math"
	"strconv"
	"strings"
)

// Key is one of the four limits of io.max, in the kernel's order.
type Key uint8

// The keys of io.max. Rbps and Wbps are bytes per second, Riops and Wiops are
// operations per second.
//
// Source: Documentation/admin-guide/cgroup-v2.rst, "io.max".
const (
	Rbps Key = iota
	Wbps
	Riops
	Wiops
	NumKeys
)

var keyNames = [NumKeys]string{"rbps", "wbps", "riops", "wiops"}

// String returns the kernel's name of the key.
func (k Key) String() string { return keyNames[k] }

// IsBytes tells bytes per second from operations per second.
func (k Key) IsBytes() bool { return k == Rbps || k == Wbps }

// IsRead tells a limit on reads from one on writes.
func (k Key) IsRead() bool { return k == Rbps || k == Riops }

// ParseKey returns the key with the kernel's name s.
func ParseKey(s string) (Key, bool) {
	for k, name := range keyNames {
		if s == name {
			return Key(k), true
		}
	}
	return 0, false
}

// Rate is the value of one key: bytes or operations per second, Unset or Max.
type Rate uint64

const (
	// Unset leaves the kernel's value as it is. The kernel's own smallest
	// value is 2 (tg_set_limit in block/blk-throttle.c), so 0 is free.
	Unset Rate = 0
	// Max is the kernel's "max": no limit.
	Max Rate = math.MaxUint64
)

// String formats the rate as the kernel writes it. Always plain decimals: the
// kernel ignores a suffix and would take 10M for ten bytes per second.
func (r Rate) String() string {
	if r == Max {
		return "max"
	}
	return strconv.FormatUint(uint64(r), 10)
}

// Limits are the four values of one device, indexed by Key. The zero value
// sets nothing. Limits are comparable with ==.
type Limits [NumKeys]Rate

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
		b.WriteString(keyNames[k])
		b.WriteByte('=')
		b.WriteString(r.String())
	}
	return b.String()
}

// IsZero says that no key is set.
func (l Limits) IsZero() bool { return l == Limits{} }

// DevLimits are the limits of one device: one line of io.max.
type DevLimits struct {
	Dev    Dev
	Limits Limits
}

// String formats the one line that a write to io.max takes,
// "8:16 rbps=max wbps=1048576". The kernel accepts one device per write.
func (d DevLimits) String() string { return d.Dev.String() + " " + d.Limits.String() }
