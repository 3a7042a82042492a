package blkio

// Burst is what a limit allows above itself for a while: up to Rate, as long as the credits last that unused parts of
// the limit have left. They are at most what Rate takes above the limit in Seconds. The zero value is no burst. Bursts are comparable with ==.
type Burst struct {
	Rate    Amount
	Seconds uint32
}

// IsZero reports whether there is no burst.
func (b Burst) IsZero() bool { return b == Burst{} }
