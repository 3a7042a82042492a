package policies

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// The parts of regular expressions that no table has. Each pattern accepts all that the
// grammar accepts, and as little more as possible.
const (
	blank = `[ \t\r]`
	// A DNS label (RFC 1123).
	label = `[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?`
	// quoted is a quoted path up to its closing quote. A backslash makes the next
	// character part of the path.
	quoted = `"(?:[^"\\\n]|\\[^\n])*"`
	// control is a control character that an entry may not have.
	control = `[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x{9f}]`
	// end matches the end of a word.
	end = `(?:[ \t\r]|$)`
	// space matches the characters that strings.TrimSpace cuts off.
	space = `[\t\n\v\f\r\x{85}\p{Z}]*`
)

// tokens matches each comment of a value, with the newline before it, and each entry, with the blanks before
// it. The value must have a newline before it.
const tokens = `\n` + blank + `*#[^\n]*|` + blank + `*(?:` + quoted + `|[^;\n \t\r])[^;\n]*`

// domain is the plugin's domain.
var domain = strings.ReplaceAll(annotation.Domain, ".", "[.]") // constant

// ours returns a pattern for the keys of the plugin's annotations, with valid kinds and scopes or not.
func ours() string { return `^([^/]*[.])?` + domain + `(/|$)` }

// ofKind matches the keys of a valid kind.
func ofKind() string { return `^` + oneOf(annotation.Kinds()...) + `[.]` + domain + `(/|$)` }

// validKey matches the keys with a valid kind and scope.
func validKey() string {
	scopes := append(annotation.Scopes(), `container[.]`+label)
	return `^` + oneOf(annotation.Kinds()...) + `[.]` + domain + `(?:/` + oneOf(scopes...) + `)?$`
}

// bareKey matches the keys with a valid kind and without a scope.
func bareKey() string { return `^` + oneOf(annotation.Kinds()...) + `[.]` + domain + `$` }

// ofClaim matches the value of a pod's annotation if it has entries, and each of them is as in the annotation
// of a claim. Lines before the first entry are comments, or have only separators.
func ofClaim() string {
	entry := annotation.EntryOfClaim()
	rest := `(?:;` + blank + `*(?:` + entry + `)?)*`
	line := blank + `*(?:#[^\n]*|(?:` + entry + `)?` + rest + `)`
	return `^(?:(?:[ \t\r;]*|` + blank + `*#[^\n]*)\n)*[ \t\r;]*` + entry + rest + `(?:\n` + line + `)*$`
}

// unquoted matches targets of pods without quotes.
const unquoted = `(?:\*|rootfs|[/@][^= \t\r]*)` + end

// ofPod matches an entry of the annotation of a claim that begins with a target.
func ofPod() string { return `^` + blank + `*` + oneOf(unquoted, quoted) }

// oneOf matches one of the patterns.
func oneOf(patterns ...string) string { return "(?:" + strings.Join(patterns, "|") + ")" }

// root matches paths of the root filesystem, and parent those with "..". Both are absolute
// paths at the start of an entry.
const (
	root   = `^` + blank + `*(?:(?:/\.?)+|"(?:/\.?)+")` + end
	parent = `^` + blank + `*(?:/[^ \t\r]*/\.\.(?:/|` + end + `)|/\.\.(?:/|` + end + `)|"/(?:(?:[^"\\]|\\["\\])*/)?\.\.[/"])`
)

// target matches the first word of an entry.
func target() string {
	return oneOf(`\*`, `rootfs`, `@`+label, `/[^ \t\r]*`, `"/(?:[^"\\\t\r]|\\["\\])*"`)
}

// keys matches the names of the keys for which include returns true.
func keys(include func(blkio.Key) bool) string {
	names := slices.DeleteFunc(annotation.LimitKeys(), func(name string) bool { return !include(annotation.KeysOf(name)[0]) })
	return oneOf(names...)
}

func every(blkio.Key) bool { return true }

// rate matches the value of a key. It accepts fractions, zeros, and rates that are too large.
func rate() string { return oneOf("max", amount()) }

func amount() string {
	number := oneOf(fmt.Sprintf(`[0-9]{1,%d}(?:\.[0-9]{0,%d})?`, annotation.MaxNumber, annotation.MaxDecimals), fmt.Sprintf(`\.[0-9]{1,%d}`, annotation.MaxDecimals))
	exponent := `[eE]\+?0*` + oneOf("0", upTo(annotation.MaxExponent))
	return `\+?` + number + oneOf(strings.Join(annotation.Suffixes(), "|"), exponent) + `?`
}

// grown matches a key whose rate grows with the size of a claim. Its numbers may be wrong.
const grown = `^[a-z]+=` + numeral + `(?:\+` + numeral + `)?/Gi(?:\.\.` + numeral + `)?$`

const numeral = `[0-9.][0-9a-zA-Z.]*`

// limits matches the limits after the target of a valid entry, up to its end. A quoted path
// cannot be a part of it: no quote is.
func limits() string {
	return `(?:` + blank + `+` + oneOf(keys(every)+`=`+rate(), keys(every)+burst()) + `)+` + blank + `*$`
}

// burst matches the rest of the key of a burst, and its value. The duration may be wrong.
func burst() string { return `[.]burst=` + amount() + `/[0-9][0-9hms]*` }

// limitsEntry and weightEntry return patterns for an entry, except for control characters.
func limitsEntry() string { return `^` + blank + `*` + target() + limits() }

func weightEntry() string {
	return `^` + blank + `*` + target() + blank + `+` + weight() + blank + `*$`
}

// weight matches a valid weight.
func weight() string { return `0*` + upTo(blkio.MaxWeight) }

// weightOfAll matches the value of an annotation with a weight for all disks.
func weightOfAll() string { return `^` + space + weight() + space + `$` }

// fractions matches the limits of an entry in which a rate has more decimals than its suffix
// makes whole: 1.5, or 0.0005k.
func fractions() string {
	patterns := []string{`[0-9]*[1-9][0-9]*`}
	for i, suffix := range annotation.Suffixes() {
		if power := 3 * (i + 1); power < annotation.MaxDecimals && !strings.HasSuffix(suffix, "i") {
			patterns = append(patterns, fmt.Sprintf(`[0-9]{%d}[0-9]*[1-9][0-9]*%s`, power, suffix))
		}
	}
	return `\.` + oneOf(patterns...) + oneOf(blank, `$`)
}

// repeated matches the limits of an entry in which a key is repeated.
func repeated() string {
	return repeatedIf(func(name, other string) bool { return name == other })
}

// overlapping matches the limits of an entry in which two keys set the same key of the kernel, or a key is repeated.
func overlapping() string {
	return repeatedIf(func(name, other string) bool {
		return slices.ContainsFunc(annotation.KeysOf(other), func(k blkio.Key) bool { return slices.Contains(annotation.KeysOf(name), k) })
	})
}

// repeatedIf matches the limits of an entry in which a key is before one that is the same.
func repeatedIf(isSame func(name, other string) bool) string {
	var patterns []string
	for _, name := range annotation.LimitKeys() {
		others := slices.DeleteFunc(annotation.LimitKeys(), func(other string) bool { return !isSame(name, other) })
		patterns = append(patterns, blank+name+`=.*`+blank+oneOf(others...)+`=`)
	}
	return oneOf(patterns...)
}

// upTo matches the numbers from 1 to most, without leading zeros.
func upTo(most int) string {
	text := strconv.Itoa(most)
	var patterns []string
	switch len(text) {
	case 1:
	case 2:
		patterns = append(patterns, `[1-9]`)
	default:
		patterns = append(patterns, fmt.Sprintf(`[1-9][0-9]{0,%d}`, len(text)-2))
	}
	for i, digit := range text {
		low := '0'
		if i == 0 {
			low = '1'
		}
		rest := strings.Repeat("[0-9]", len(text)-i-1)
		if low < digit {
			patterns = append(patterns, text[:i]+fmt.Sprintf("[%c-%c]", low, digit-1)+rest)
		}
	}
	return oneOf(append(patterns, text)...)
}

func isBytes(k blkio.Key) bool      { return k.IsBytes() }
func isOperations(k blkio.Key) bool { return !k.IsBytes() }

// rates matches the numbers of keys, other than max, in the limits of a well-formed entry.
func rates(include func(blkio.Key) bool) string {
	return keys(include) + `=\+?[0-9.][0-9a-zA-Z.+]*`
}

func mostBytes() string      { return strconv.FormatUint(uint64(blkio.Wbps.Most()), 10) }
func mostOperations() string { return strconv.FormatUint(uint64(blkio.Wiops.Most()), 10) }
