package blkio

// Burst lets a cgroup exceed a limit for a while, up to Rate. That takes credits, which the cgroup gains while it uses less than its limit.
// Full credits last for Seconds at Rate. The zero value means that the limit is never exceeded.
type Burst struct {
	Rate    Amount
	Seconds uint32
}

// IsZero reports whether the limit is never exceeded.
func (b Burst) IsZero() bool { return b == Burst{} }
