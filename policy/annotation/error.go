package annotation

import (
	"strconv"

	"github.com/nri-blkio/nri-blkio/policy/quote"
)

// Kind selects the setting of the node policy that applies to an error.
type Kind uint8

const (
	// Invalid is a request that cannot be parsed, contradicts itself, or is
	// out of bounds.
	Invalid Kind = iota
	// Unenforceable is a valid request that this node cannot carry out.
	Unenforceable
	// Internal is a failure of this program to decide. A later try may succeed.
	Internal
)

// String returns the name of the kind in the node policy.
func (k Kind) String() string {
	return [...]string{"invalid", "unenforceable", "internal"}[k]
}

// Error is a mistake in one annotation. Its fields have the tenant's text as it was
// written. The method Error quotes it.
type Error struct {
	Annotation string // the full key
	Entry      int    // 1-based; 0 for the annotation as a whole
	Text       string // of the entry, or the value of the annotation
	Cause      string // printable ASCII; text of the tenant in it is quoted
	Hint       string // the correct text, or ""
	Kind       Kind
}

const (
	// maxLine bounds the whole message, which must survive the runtime, the
	// kubelet and an Event. The runtime puts some 130 bytes before it.
	maxLine = 400
	// maxKey leaves the longest valid key whole: the prefix, "container."
	// and a name of 63 bytes.
	maxKey = 110
	// minText is the length of the entry's text that is kept if the cause is long.
	minText = 40
)

// Error returns one line of printable ASCII, at most 400 bytes. Equal errors give equal
// lines.
func (e *Error) Error() string {
	head := "nri-blkio: " + quote.Name(e.Annotation, maxKey) + ": "
	if e.Entry > 0 {
		head += "entry " + strconv.Itoa(e.Entry) + " "
	}
	tail := quote.ASCII(e.Cause)
	if e.Hint != "" {
		tail += " (" + quote.ASCII(e.Hint) + ")"
	}
	if e.Entry == 0 && e.Text == "" {
		return head + cut(tail, maxLine-len(head))
	}
	tail = ": " + cut(tail, maxLine-len(head)-minText-len(": "))
	return head + quote.Within(e.Text, maxLine-len(head)-len(tail)) + tail
}

// cut shortens ASCII text to limit bytes, "..." included.
func cut(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	return s[:limit-len("...")] + "..."
}

// Problem is the cause and the hint of an Error, without the place.
type Problem struct {
	Cause, Hint string
}

// String returns the cause, and the hint in parentheses.
func (p *Problem) String() string {
	if p.Hint == "" {
		return p.Cause
	}
	return p.Cause + " (" + p.Hint + ")"
}
