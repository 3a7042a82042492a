package annotation

import (
	"math"
	"math/bits"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy/quote"
)

// ParseClaim parses the annotation of a claim, which has limits without a target:
//
//	rbps=200Mi wbps=50Mi riops=100+3/Gi
//
// Separators and comments are those of a pod's annotation. A rate may grow with the size of the claim, which is in bytes. The list has
// one entry, whose target is the claim. The list is nil with an error.
func ParseClaim(claim, text string, size int64) (*List, *Error) {
	from, e := Origin{Claim: claim}, claimEntry(claim, text)
	if len(text) > MaxValue {
		return nil, New(Identity{From: from}, &Problem{"the value is longer than 64 KiB", "write for example " + hintClaim})
	}
	if HaveTargets(text) {
		return nil, New(Identity{From: from, Text: text, Reason: OfPod}, &Problem{
			"limits with targets are those of a pod, and have no effect on a claim", "write for example " + hintClaim,
		})
	}
	for entry := range splitEntries(text) {
		p := checkText(entry)
		if p == nil {
			p = targetOf(entry)
		}
		if p == nil {
			p = e.addLimits(entry, claimSize(size).parseRate)
		}
		if p != nil {
			return nil, New(Identity{From: from, Text: text}, p)
		}
	}
	if e.Limits.IsZero() {
		return nil, New(Identity{From: from}, &Problem{"the value is empty", "write for example " + hintClaim + ", or remove the annotation"})
	}
	return &List{From: from, Entries: []Entry{e}, count: 1}, nil
}

// hintClaim is an example of the annotation of a claim.
const hintClaim = `"wbps=50Mi"`

// targetOf returns the problem of limits that begin with a target.
func targetOf(entry string) *Problem {
	word, _ := cutWord(entry)
	isName := word[0] == '/' || word[0] == '@'
	if word != "*" && word != "rootfs" && word[0] != '"' && (!isName || strings.Contains(word, "=")) {
		return nil
	}
	return &Problem{quote.Text(word) + " is a target", "the limits of a claim have none; write for example " + hintClaim}
}

// EntryOfClaim returns a pattern for the entries of the annotation of a claim, valid or not: keys of limits, each with a value. On a pod
// such entries are ignored. Others, such as "rootfs=50Mi", are mistakes in a target, and are errors there.
func EntryOfClaim() string {
	word := `(?:` + strings.Join(LimitKeys(), "|") + `)=[-+./0-9A-Za-z]*`
	return word + `(?:[ \t\r]+` + word + `)*[ \t\r]*`
}

var entryOfClaim = regexp.MustCompile(`^` + EntryOfClaim() + `$`)

// lackTargets reports whether a value is the annotation of a claim rather than that of a pod: it has entries, and each of them matches
// EntryOfClaim.
func lackTargets(value string) (lack bool) {
	if len(value) > MaxValue {
		return false
	}
	for entry := range splitEntries(value) {
		if lack = entryOfClaim.MatchString(entry); !lack {
			return false
		}
	}
	return lack
}

// HaveTargets reports whether a value is the annotation of a pod rather than that of a claim, valid or not: it has entries, and each
// of them begins with a target.
func HaveTargets(value string) (have bool) {
	for entry := range splitEntries(value) {
		isOpen := entry[0] == '"' && quoteEnd(entry) < 0
		if have = targetOf(entry) != nil && !isOpen; !have {
			return false
		}
	}
	return have
}

// OwnPrefix is the prefix of the rates of this program in the parameters of a class.
const OwnPrefix = Domain + "/"

// OwnParameters returns the keys of rates of this program in the parameters of a class.
func OwnParameters() (out []string) {
	for _, key := range LimitKeys() {
		out = append(out, OwnPrefix+key)
	}
	return out
}

// Parameters returns the keys of rates in the parameters of a class, by precedence: [OwnParameters], and the keys of the kernel. A plain
// "iops" is not one: drivers of clouds have it, for the sum of both directions.
func Parameters() []string {
	out := OwnParameters()
	for k := range blkio.NumLimits {
		out = append(out, k.String())
	}
	return out
}

// ParseRates is ParseClaim for the rates among the parameters of a class of a claim. Of two rates of one key that with [OwnPrefix]
// counts, but both have to be valid. The list is nil without rates as well.
func ParseRates(claim, class string, parameters map[string]string, size int64) (*List, *Error) {
	return ratesOf(Origin{Claim: claim, Class: class}, Parameters(), parameters, func(e *Entry, key, value string) *Problem {
		name, isOwn := strings.CutPrefix(key, OwnPrefix)
		rate, p := claimSize(size).parseRate(KeysOf(name)[0], value)
		switch repeats := e.repeats(name); {
		case p != nil:
			return p
		case repeats == nil:
			e.set(name, rate)
		case isOwn:
			return repeats
		}
		return nil
	})
}

// ratesOf parses the rates of a claim that are among the values of a map, in the order of their keys. add adds one to the entry. The list
// is nil without rates as well.
func ratesOf(from Origin, keys []string, values map[string]string, add func(e *Entry, key, value string) *Problem) (*List, *Error) {
	e := claimEntry(from.Claim, "")
	var texts []string
	for _, key := range keys {
		value, found := values[key]
		if !found {
			continue
		}
		value = strings.TrimSpace(value)
		text := key + "=" + value
		if p := add(&e, key, value); p != nil {
			return nil, New(Identity{From: from, Text: text}, p)
		}
		texts = append(texts, text)
	}
	if e.Limits.IsZero() {
		return nil, nil
	}
	e.text = strings.Join(texts, " ")
	return &List{From: from, Entries: []Entry{e}, count: 1}, nil
}

// claimEntry returns an entry without limits, whose target is a claim.
func claimEntry(claim, text string) Entry {
	return Entry{Target: Target{Kind: TargetClaim, Claim: claim}, text: text}
}

// Without returns the list of a claim without the keys that another one has, and nil if no key is left. Each may be nil.
func (l *List) Without(o *List) *List {
	if l == nil || o == nil {
		return l
	}
	out := &List{From: l.From, count: l.count}
	e := l.Entries[0]
	for k := range e.Limits {
		if o.Entries[0].Limits[k] != blkio.Unset {
			e.Limits[k] = blkio.Unset
		}
	}
	if e.Limits.IsZero() {
		return nil
	}
	out.Entries = []Entry{e}
	return out
}

// driverPrefix is the prefix of the rates that a storage driver writes into the metadata of an attachment.
const driverPrefix = "qos.linbit.com/"

// DriverKeys returns the keys of rates in the metadata of an attachment (VolumeAttachment.status.attachmentMetadata). A storage
// driver sets them with the result of ControllerPublishVolume. They are those that nri-volume-qos reads and linstor-csi writes:
// whole numbers of bytes or operations per second. The key "device" beside them is not read, because the plugin finds the disks itself.
func DriverKeys() (out []string) {
	for k := range blkio.NumLimits {
		out = append(out, driverPrefix+k.String())
	}
	return out
}

// ParseDriver is ParseClaim for the rates in the metadata of an attachment that a storage driver wrote. A rate of zero is none. The list is
// nil without rates as well.
func ParseDriver(claim, driver string, metadata map[string]string) (*List, *Error) {
	return ratesOf(Origin{Claim: claim, Driver: driver}, DriverKeys(), metadata, func(e *Entry, key, value string) *Problem {
		name := strings.TrimPrefix(key, driverPrefix)
		rate, p := ParseAmount(KeysOf(name)[0], value)
		e.set(name, rate)
		return p
	})
}

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
