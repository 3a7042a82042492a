package annotation

import (
	"math"
	"math/bits"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy/quote"
)

// claimSize is the size of a claim in bytes. It is unknown if it is not above zero.
type claimSize int64

// SizeOf returns a size in bytes, at least zero. The value of a quantity such as 10E, which is more than an int64 can hold, is zero.
func SizeOf(q resource.Quantity) int64 {
	if q.AsApproximateFloat64() >= math.MaxInt64 {
		return math.MaxInt64
	}
	return max(q.Value(), 0)
}

const (
	gibibyte = 1 << 30
	// perGiB and upToMost are the marks of a rate that grows with the size of a claim.
	perGiB   = "/Gi"
	upToMost = ".."
)

// parseRate parses a rate of a claim, which may grow with the size of the claim:
//
//	100+3/Gi        100, and 3 for each GiB of the claim
//	100+3/Gi..16k   the same, up to 16k
//	3/Gi            only 3 for each GiB
//
// A GiB that has begun counts as a whole one, so the rate is a whole number, and a small claim has one above zero. The form says in
// one value what storage drivers put into three parameters (base, per GiB, most). "/Gi" is the suffix of the sizes that it counts,
// and ".." needs no quotes in YAML or in a shell, as "<=" does. A rate that exceeds what the kernel can keep is the largest one of
// the kernel.
func (size claimSize) parseRate(k blkio.Key, s string) (blkio.Amount, *Problem) {
	head, most, isBounded := strings.Cut(s, upToMost)
	head, grows := strings.CutSuffix(head, perGiB)
	switch {
	case !grows && isGrowth(s):
		return 0, &Problem{"invalid growth " + quote.Text(s), hintGrowth(k)}
	case !grows && isBounded:
		return 0, &Problem{quote.Text(s) + " has a maximum, and does not grow", hintGrowth(k)}
	case !grows:
		return parseRate(k, s)
	}
	g := growth{most: k.Most()}
	base, step, hasBase := strings.Cut(head, "+")
	if !hasBase {
		base, step = "", head
	} else if p := g.parse(k, base, &g.base); p != nil {
		return 0, p
	}
	if p := g.parse(k, step, &g.step); p != nil {
		return 0, p
	}
	if isBounded {
		if p := g.parse(k, most, &g.most); p != nil {
			return 0, p
		}
	}
	switch {
	case g.most < g.base:
		return 0, &Problem{"maximum " + quote.Text(most) + " is below " + quote.Text(base), "write the largest rate after the dots"}
	case size <= 0:
		return 0, &Problem{"the size of the claim is unknown", "set spec.resources.requests.storage of the claim"}
	}
	return g.at(size), nil
}

// growth is a rate that grows with the size of a claim.
type growth struct{ base, step, most blkio.Amount }

// parse parses one part of a rate that grows.
func (g *growth) parse(k blkio.Key, s string, to *blkio.Amount) *Problem {
	if s == "" {
		return &Problem{"a number is missing in a rate that grows", hintGrowth(k)}
	}
	if s == "max" || strings.Contains(s, "+") {
		return &Problem{"invalid number " + quote.Text(s) + " in a rate that grows", hintGrowth(k)}
	}
	amount, p := parseRate(k, s)
	if p != nil {
		return p
	}
	*to = amount
	return nil
}

// at returns the rate of a claim of a size.
func (g *growth) at(size claimSize) blkio.Amount {
	started := (uint64(size)-1)/gibibyte + 1
	over, grown := bits.Mul64(uint64(g.step), started)
	sum, carry := bits.Add64(uint64(g.base), grown, 0)
	if over != 0 || carry != 0 {
		return g.most
	}
	return min(blkio.Amount(sum), g.most)
}

// isGrowth reports whether a value is meant as a rate that grows: "/" and a unit of sizes follow a number. The unit of "50Mi/s" is none.
func isGrowth(s string) bool {
	number, unit, found := strings.Cut(s, "/")
	return found && number != "" && unit != "" && strings.IndexByte("kKmMgGtT", unit[0]) >= 0
}

// hintGrowth is an example of a rate that grows.
func hintGrowth(k blkio.Key) string {
	if k.IsBytes() {
		return "write for example 50Mi+1Mi/Gi..200Mi"
	}
	return "write for example 100+3/Gi..16k"
}
