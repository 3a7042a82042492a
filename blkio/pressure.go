package blkio

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Pressure is the time since the cgroup appeared in which some, or all, of its threads that could run waited.
type Pressure struct {
	Some, Full time.Duration
}

// ParsePressure parses io.pressure.
//
//	some avg10=0.00 avg60=1.83 avg300=0.90 total=2765132
//	full avg10=0.00 avg60=1.79 avg300=0.89 total=2699120
//
// The total is in microseconds.
//
// Source: Documentation/accounting/psi.rst.
func ParsePressure(data string) (Pressure, error) {
	var out Pressure
	seen := 0
	for line := range strings.Lines(data) {
		kind, rest, _ := strings.Cut(line, " ")
		to := &out.Some
		switch kind {
		case "some":
		case "full":
			to = &out.Full
		default:
			continue // a later kernel's
		}
		_, total, _ := strings.Cut(rest, "total=")
		n, err := strconv.ParseInt(strings.TrimSpace(total), 10, 64)
		if err != nil || n < 0 || n > int64(time.Duration(1<<63-1)/time.Microsecond) {
			return Pressure{}, fmt.Errorf("parse io.pressure, %.80q: no total", strings.TrimSpace(line))
		}
		*to = time.Duration(n) * time.Microsecond
		seen++
	}
	if seen < 2 {
		return Pressure{}, fmt.Errorf("parse io.pressure, %.80q: no line \"some\" or \"full\"", data)
	}
	return out, nil
}

// String formats the pressure as the kernel does, without averages.
func (p Pressure) String() string {
	return fmt.Sprintf("some total=%d\nfull total=%d\n", p.Some.Microseconds(), p.Full.Microseconds())
}
