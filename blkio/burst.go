package blkio

// Burst lets a cgroup exceed a limit for a while. Whatever the cgroup does not use of its limit becomes credits, and while it has credits
// its rate may be up to Rate. A full account is enough for Seconds at that rate. The zero value means that the limit is never exceeded.
type Burst struct {
	Rate    Amount
	Seconds uint32
}

// IsZero reports whether the limit is never exceeded.
func (b Burst) IsZero() bool { return b == Burst{} }
