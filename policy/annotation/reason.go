package annotation

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
