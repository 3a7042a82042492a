package annotation

import (
	"fmt"
	"strconv"

	"github.com/nri-blkio/nri-blkio/policy/quote"
)

// Identity is what an error is about and why, for programs. Identities are comparable with ==. An error has no other one while
// only amounts in its sentence change, such as what is granted to other pods.
type Identity struct {
	From    Origin
	Entry   int    // 1-based; 0 for the annotation as a whole
	Text    string // of the entry, or the value of the annotation, as its author wrote it
	Subject string // a mount, a disk with a rate, or another object, if Text does not name it
	Reason  Reason
}

// String is different for different identities. It is for names and digests, and not for people.
func (i *Identity) String() string {
	return fmt.Sprintf("%q %d %q %q %d", i.From, i.Entry, i.Text, i.Subject, i.Reason)
}

// Error is a mistake in one annotation, or in another request for limits: its identity for programs, and a sentence for people. Its
// fields have the tenant's text as it was written. The method Error quotes it.
type Error struct {
	Identity
	Cause string // printable ASCII; text of the tenant in it is quoted
	Hint  string // the correct text, or ""
}

// New returns an error with the sentence of a problem.
func New(of Identity, p *Problem) *Error { return &Error{of, p.Cause, p.Hint} }

// Kind selects the setting of the node policy that applies to the error.
func (e *Error) Kind() Kind { return e.Reason.Kind() }

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
	head := "nri-blkio: " + quote.Name(e.From.String(), maxKey) + ": "
	return head + e.after(len(head))
}

// WithoutOrigin returns Error without the program and the origin.
func (e *Error) WithoutOrigin() string {
	return e.after(len("nri-blkio: ") + len(quote.Name(e.From.String(), maxKey)) + len(": "))
}

// after returns the part of the line after its head, which has some length.
func (e *Error) after(head int) string {
	entry := ""
	if e.Entry > 0 {
		entry = "entry " + strconv.Itoa(e.Entry) + " "
	}
	room := maxLine - head - len(entry)
	tail := quote.ASCII(e.Cause)
	if e.Hint != "" {
		tail += " (" + quote.ASCII(e.Hint) + ")"
	}
	if e.Entry == 0 && e.Text == "" {
		return quote.Clip(tail, room)
	}
	tail = ": " + quote.Clip(tail, room-minText-len(": "))
	return entry + quote.Within(e.Text, room-len(tail)) + tail
}

// Problem is the cause and the hint of an Error, without the place.
type Problem struct {
	Cause, Hint string
}

// String returns the cause, and the hint in parentheses; "" for nil.
func (p *Problem) String() string {
	switch {
	case p == nil:
		return ""
	case p.Hint == "":
		return p.Cause
	}
	return p.Cause + " (" + p.Hint + ")"
}

// Origin is what asks for limits, or has a mistake: an annotation, a claim, a class or a field of the node policy. Origins are
// comparable with ==.
type Origin struct {
	Annotation  string // the full key
	Claim, Rule string // names
	Class       string // the name of a class; of the claim or the rule, if there is one
	Driver      string // the storage driver that wrote limits for the claim
	Field       string // of the policy, or another word for the whole of it
}

// String returns the name of the annotation, "claim NAME", "claim NAME, class NAME", "claim NAME, driver NAME", "class NAME", "rule NAME",
// "rule NAME, class NAME", or the field.
func (o Origin) String() string {
	text := o.Annotation + o.Field
	switch {
	case o.Claim != "":
		text = "claim " + o.Claim
	case o.Rule != "":
		text = "rule " + o.Rule
	case o.Class != "":
		return "class " + o.Class
	}
	if o.Class != "" {
		text += ", class " + o.Class
	}
	if o.Driver != "" {
		text += ", driver " + o.Driver
	}
	return text
}

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

// Reason is the cause of an Error for programs. The sentence of the error says more.
type Reason uint8

// The reasons, in the order of their kinds.
const (
	Malformed       Reason = iota // it does not follow the grammar, or contradicts itself
	NotAllowed                    // the rule rejects annotations
	Ignored                       // the rule ignores annotations
	IgnoredClaims                 // the rule ignores limits of claims
	OfClaim                       // limits of a claim are on a pod
	OfPod                         // limits of a pod are on a claim
	OutOfBounds                   // the policy has bounds or a floor
	UnknownClass                  // the policy has no class of this name
	UnknownClaim                  // the limits of the claim cannot be read
	NoMount                       // the container has no mount of the target
	NoRoom                        // the budget of the namespace has no room
	NeedsLimit                    // the budget of the namespace needs a limit
	Conflict                      // two paths of one disk have other values
	TooManyMounts                 // some mounts of the pod are unknown
	NoDisk                        // the target is on no disk of this node
	NoControl                     // the kernel does not have the control file
	NoPodCgroup                   // the pod as a whole cannot have limits
	ForeignHandler                // the runtime handler may not share the host's kernel
	VolumesNotKnown               // the volumes of the pod are unknown
	CannotBeLimited               // a later try may find the disk of the target
)

// Kind returns the kind of an error with this reason.
func (r Reason) Kind() Kind {
	switch {
	case r < NoDisk:
		return Invalid
	case r < CannotBeLimited:
		return Unenforceable
	}
	return Internal
}
