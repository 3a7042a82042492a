package policy

import (
	"slices"
	"strconv"
)

// Bounds of memory, output and work of a decision. Longer lists would
// not be read.
const (
	maxListed = 16  // of one kind in a Desired, or lines of Unmatched
	maxHints  = 16  // mistakes that come with a search for the intended word
	maxTarget = 64  // bytes of a target that is reported
	maxName   = 110 // bytes of a mount that a warning names
	maxReason = 256 // bytes of a reason; a path of the host may be in it
)

// distinct keeps the first values that it gets, and counts further ones. It counts equal
// values once: "*" over many containers has "rootfs" many times.
type distinct[T comparable] struct {
	kept []T
	more map[T]struct{}
}

// add reports whether v is new.
func (d *distinct[T]) add(v T) bool {
	if slices.Contains(d.kept, v) {
		return false
	}
	if len(d.kept) < maxListed {
		d.kept = append(d.kept, v)
		return true
	}
	if _, ok := d.more[v]; ok {
		return false
	}
	if d.more == nil {
		d.more = make(map[T]struct{})
	}
	d.more[v] = struct{}{}
	return true
}

// andMore closes a list that leaves n lines out.
func andMore(lines []string, n int) []string {
	if n == 0 {
		return lines
	}
	return append(lines, "and "+strconv.Itoa(n)+" more")
}
