package annotation

import (
	"errors"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy/quote"
)

// Bounds of numbers.
const (
	// MaxNumber bounds the text of a number, zeros and decimals included.
	MaxNumber = 40
	// MaxDecimals is the precision of a Kubernetes quantity. ParseQuantity rounds more.
	MaxDecimals = 9
	// MaxExponent is at least what 0.000000001e27 needs; ParseQuantity computes with any.
	MaxExponent = 36
)

// parseRate parses the value of key k: a Kubernetes quantity that is a whole
// number above zero, or max.
func parseRate(k blkio.Key, s string) (blkio.Amount, *Problem) {
	rate, p := ParseAmount(k, s)
	if p == nil && rate == 0 {
		p = &Problem{k.String() + "=" + s + " stops all I/O", "write max for no limit"}
	}
	return rate, p
}

// ParseAmount parses a Kubernetes quantity that is a whole number, or "max", for the key k.
// Zero is valid.
func ParseAmount(k blkio.Key, s string) (blkio.Amount, *Problem) {
	if s == "max" {
		return blkio.Max, nil
	}
	if p := checkNumber(k, s); p != nil {
		return 0, p
	}
	v, whole, ok := exact(s)
	switch {
	case ok && !whole:
		return 0, &Problem{quote.Text(s) + " is not a whole number", "write a whole number such as " + example(k)}
	case ok && v <= uint64(k.Most()):
		return blkio.Amount(v), nil
	case k.IsBytes():
		return 0, &Problem{quote.Text(s) + " is too large", "write less than 8Ei, or max for no limit"}
	default:
		return 0, &Problem{quote.Text(s) + " is too large", "write at most 4294967294, or max for no limit"}
	}
}

// number is a quantity that was taken apart: digits, decimals and suffix.
type number struct {
	digits   string // with a sign and a point
	decimals int
	suffix   string
}

// checkNumber returns the problem of a value that is no positive Kubernetes quantity, with a hint. It refuses
// more than ParseQuantity does: numbers that ParseQuantity rounds (smaller than nano) or takes hours to compute
// (1e2147483647).
func checkNumber(k blkio.Key, s string) *Problem {
	if s == "" {
		return &Problem{"key " + quote.Text(k.String()) + " has no value", "write for example " + k.String() + "=" + example(k)}
	}
	n := split(s)
	switch {
	case s[0] == '-':
		return &Problem{quote.Text(s) + " is negative", "write a whole number such as " + example(k) + ", or max for no limit"}
	case s[0] == '"' || s[0] == '\'':
		return &Problem{"value " + quote.Text(s) + " is quoted", "write it without quotes"}
	case isGrowth(s):
		return &Problem{
			quote.Text(s) + " grows with the size of a claim",
			"only a claim's own annotation and a VolumeAttributesClass can have it; write a whole number such as " + example(k),
		}
	case !isDigit(s[0]) && isNoLimit(s):
		return &Problem{"invalid rate " + quote.Text(s), "write max for no limit"}
	case strings.Trim(n.digits, "+.") == "":
		return &Problem{"invalid number " + quote.Text(s), "write a whole number such as " + example(k)}
	case len(n.digits) > MaxNumber:
		return &Problem{"number " + quote.Text(s) + " is too long", "write a whole number such as " + example(k)}
	case n.decimals > MaxDecimals:
		return &Problem{quote.Text(s) + " has more than nine decimals", "write a whole number such as " + example(k)}
	}
	return n.checkSuffix(k, s)
}

// isNoLimit knows the words of others for max.
func isNoLimit(s string) bool {
	return slices.Contains([]string{"max", "none", "inf", "infinity", "unlimited"}, strings.ToLower(s))
}

func split(s string) number {
	end, point := 0, -1
	if strings.HasPrefix(s, "+") {
		end = 1
	}
	for end < len(s) && (isDigit(s[end]) || s[end] == '.' && point < 0) {
		if s[end] == '.' {
			point = end
		}
		end++
	}
	n := number{digits: s[:end], suffix: s[end:]}
	if point >= 0 {
		n.decimals = end - point - 1
	}
	return n
}

// checkSuffix accepts the suffixes of Kubernetes that can give whole numbers.
func (n number) checkSuffix(k blkio.Key, s string) *Problem {
	if n.suffix == "" || slices.Contains(Suffixes(), n.suffix) {
		return nil
	}
	if small := map[string]string{"m": "thousandths", "u": "millionths", "n": "billionths"}[n.suffix]; small != "" {
		p := &Problem{quote.Text(s) + " is a fraction: " + n.suffix + " is Kubernetes' suffix for " + small, unitHint(k, n)}
		if whole, ok := strings.CutSuffix(n.digits, "000"); ok && whole != "" && n.suffix == "m" && n.decimals == 0 {
			p.Hint = "write " + whole
		}
		return p
	}
	if digits, ok := strings.CutPrefix(strings.ToLower(n.suffix), "e"); ok {
		exp, negative := strings.CutPrefix(digits, "-")
		if !negative {
			exp = strings.TrimPrefix(exp, "+")
		}
		switch e, err := strconv.ParseUint(exp, 10, 64); {
		case errors.Is(err, strconv.ErrSyntax):
		case negative:
			return &Problem{quote.Text(s) + " is a fraction", "write a whole number such as " + example(k)}
		case e > MaxExponent: // out of range is the largest there is
			return &Problem{quote.Text(s) + " is too large", "write max for no limit"}
		default:
			return nil
		}
	}
	return &Problem{"invalid quantity " + quote.Text(s), unitHint(k, n)}
}

// exact returns the number, whether it is whole, and false if it does not fit into an int64.
func exact(s string) (v uint64, whole, ok bool) {
	q, err := resource.ParseQuantity(s)
	if err != nil {
		return 0, false, false // not reached, because checkNumber refuses such a text
	}
	up := q.Value() // rounded up
	return uint64(up), q.CmpInt64(up) == 0, q.CmpInt64(math.MaxInt64) <= 0
}

var (
	bitRate = regexp.MustCompile(`bps$|(?i:bits?(?:ps|/s|/sec|/second)?$)`)
	units   = regexp.MustCompile(`(?i)^([kmgtp]?)(i??)(?:bytes|byte|b|iops|ops)?(?:ps|/s|/sec|/second)?$`)
)

// unitHint returns the correct text for a number with a suffix of another convention: 50MB, 50MiB, 10K, 50Mi/s,
// 50m.
func unitHint(k blkio.Key, n number) string {
	unit := units.FindStringSubmatch(n.suffix)
	switch {
	case bitRate.MatchString(n.suffix):
		return "rates are bytes per second, not bits; write for example " + example(k)
	case strings.Contains(n.suffix, ","):
		return "separate keys by blanks, and write numbers without commas"
	case unit == nil, unit[1] == "" && (unit[2] != "" || n.decimals > 0):
		return "write a whole number such as " + example(k)
	}
	letter := strings.ToUpper(unit[1])
	binary, decimal := n.digits+letter+"i", n.digits+strings.Replace(letter, "K", "k", 1)
	switch {
	case letter == "":
		return "write " + n.digits
	case unit[2] != "":
		return "write " + binary
	case k.IsBytes():
		return "write " + decimal + " or " + binary
	}
	return "write " + decimal
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// example is a rate to show in hints.
func example(k blkio.Key) string {
	if k.IsBytes() {
		return "50Mi"
	}
	return "2k"
}

// FormatAmount formats an amount for annotations, in the shortest exact form: 64Ki, 50M,
// 2k, max. A weight has no suffix.
func FormatAmount(k blkio.Key, r blkio.Amount) string {
	if r == blkio.Max || r == blkio.Unset || k.IsShare() {
		return r.String()
	}
	best := r.String()
	try := func(base uint64, suffixes ...string) {
		v := uint64(r)
		for _, suffix := range suffixes {
			if v%base != 0 {
				return
			}
			v /= base
			if s := strconv.FormatUint(v, 10) + suffix; len(s) < len(best) {
				best = s
			}
		}
	}
	if k.IsBytes() {
		try(1024, "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
	}
	try(1000, "k", "M", "G", "T", "P", "E")
	return best
}

// LimitKeys returns the keys of limits: those of the kernel, and those that set two of them.
func LimitKeys() (names []string) {
	for k := range blkio.NumLimits {
		names = append(names, k.String())
	}
	return append(names, "bps", "iops")
}

// KeysOf returns the keys of the kernel that a key of limits sets. It returns nil for an unknown one.
func KeysOf(name string) []blkio.Key {
	switch name {
	case "bps":
		return []blkio.Key{blkio.Rbps, blkio.Wbps}
	case "iops":
		return []blkio.Key{blkio.Riops, blkio.Wiops}
	}
	if k, known := blkio.ParseKey(blkio.IOMax, name); known {
		return []blkio.Key{k}
	}
	return nil
}

func (e *Entry) repeats(name string) *Problem {
	for _, k := range KeysOf(name) {
		if e.Limits[k] == blkio.Unset {
			continue
		}
		earlier := k.String()
		if e.paired[k] && k.IsBytes() {
			earlier = "bps"
		} else if e.paired[k] {
			earlier = "iops"
		}
		if earlier == name {
			return &Problem{"duplicate key " + quote.Text(name), "write it once"}
		}
		return &Problem{"the keys " + quote.Text(earlier) + " and " + quote.Text(name) + " set the same limit", "bps and iops set both directions; write one of the two keys"}
	}
	return nil
}

func (e *Entry) set(name string, rate blkio.Amount) {
	keys := KeysOf(name)
	for _, k := range keys {
		e.Limits[k], e.paired[k] = rate, len(keys) > 1
	}
}

// Kinds of annotations.
const (
	KindLimits = "limits"
	KindWeight = "weight"
	KindClass  = "class"
)

// Scopes of annotations. That of one container is container.NAME.
const (
	ScopeEach  = "containers"
	ScopeTotal = "pod-total"
	scopeNamed = "container."
)

// limitsKey is the annotation of limits of a claim, and on a pod that of the scope containers.
const limitsKey = KindLimits + "." + Domain

// IsKey reports whether the key of an annotation has the plugin's domain, valid or not.
func IsKey(key string) bool {
	prefix, _, _ := strings.Cut(key, "/")
	kind, ok := strings.CutSuffix(prefix, Domain)
	return ok && (kind == "" || strings.HasSuffix(kind, "."))
}

// CutKey returns the kind of an annotation, known or not, and its scope.
func CutKey(key string) (kind, scope string) {
	prefix, scope, _ := strings.Cut(key, "/")
	return strings.TrimSuffix(strings.TrimSuffix(prefix, Domain), "."), scope
}

// What follows describes the grammar to generators of other forms of it, such as
// the admission policies of test/admission/policies.

// Scopes returns the scopes that are whole words. The other scopes are container.NAME.
func Scopes() []string { return []string{ScopeEach, ScopeTotal} }

// Suffixes returns the suffixes of Kubernetes quantities that a rate may have. The decimal ones come first, by
// their powers of 1000, then the binary ones, by their powers of 1024.
func Suffixes() []string {
	return []string{"k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"}
}
