package policies

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
	"github.com/nri-blkio/nri-blkio/policy/quote"
)

// cause is one reason why a part of an annotation is wrong. Its text is the grammar's text about a sample, so
// that the API server and the plugin explain a mistake in the same words.
type cause struct {
	when   string // an expression about the part, t or key; "" in the last cause
	sample string // a value with the mistake
	word   string // the text in the sample that the error quotes, or "" for none
	noun   string // the noun that replaces the quoted text
}

// claimKind is the kind of samples that are annotations of claims.
const claimKind = "claim"

// text returns the cause and the hint of the grammar about a value of a kind.
func text(kind, value string) string {
	if kind == claimKind {
		return claimText(value)
	}
	return errorText(map[string]string{kind + "." + annotation.Domain + "/containers": value})
}

// errorText returns the cause and the hint of the first mistake in annotations. It panics if
// there is none: the samples are constants, and a test generates all files.
func errorText(annotations map[string]string) string {
	r := annotation.Parse(annotations)
	errs := slices.Concat(r.PodWide(), r.Each().Errors(), r.Total().Errors())
	if len(errs) == 0 {
		panic(fmt.Sprintf("no mistake in %q", annotations))
	}
	p := annotation.Problem{Cause: errs[0].Cause, Hint: errs[0].Hint}
	return p.String()
}

// chain returns an expression for the text of the first cause that applies. Each cause belongs to a sample of
// the kind.
func chain(kind string, causes []cause) string {
	var b strings.Builder
	for _, c := range causes {
		s := text(kind, c.sample)
		if c.word != "" {
			old := quote.Text(c.word)
			if !strings.Contains(s, old) {
				old = c.word
			}
			if c.noun == "" {
				old = " " + old
			}
			if !strings.Contains(s, old) {
				panic(fmt.Sprintf("%s does not quote %s", s, old))
			}
			s = strings.Replace(s, old, c.noun, 1)
		}
		if c.when != "" {
			b.WriteString(c.when + " ? ")
		}
		b.WriteString(literal(s))
		if c.when != "" {
			b.WriteString("\n      : ")
		}
	}
	return b.String()
}

// literal returns a string of CEL.
func literal(s string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(quote.ASCII(s)) + "'"
}

// is returns an expression that compares an entry with a pattern. isNot is its negation.
func is(pattern string) string    { return "t.matches(r'" + pattern + "')" }
func isNot(pattern string) string { return "!" + is(pattern) }

// firstWord matches the target of an entry, valid or not.
const firstWord = `^(?:` + quoted + `|[^ \t\r]+)`

// after returns a pattern that matches the text after the target of an entry.
func after(pattern string) string { return firstWord + pattern }

// targetCauses returns the causes of a wrong target. The samples are entries of limits.
func targetCauses() []cause {
	return []cause{
		{`t.startsWith('#')`, "* wbps=1Mi; # comment", "", ""},
		{is(control), "/data wbps=1Mi\x1b", "", ""},
		{`t.startsWith('disk:')`, "disk:sda wbps=1Mi", "", ""},
		{is(`^` + keys(every) + `=`), "wbps=50Mi", "wbps=50Mi", "the limits"},
		{`t.startsWith('"') && ` + isNot(`^`+quoted), `"/a wbps=1Mi`, "", ""},
		{is(`^` + quoted + `[^ \t\r]`), `"/a"wbps=1Mi`, "", ""},
		{is(`^"` + oneOf(`\*`, `rootfs`, `@`+label) + `"`), `"rootfs" wbps=1Mi`, "rootfs", ""},
		{is(`^"(?:[^"\\]|\\["\\])*\\[^"\\]`), `"/a\n" wbps=1Mi`, `\n`, ""},
		{is(parent), "/a/../b wbps=1Mi", "/a/../b", ""},
		{is(root), "/ wbps=1Mi", "/", "the target"},
		{is(`^(?:"[^/]|\.|[^/@"* \t\r][^ \t\r]*/)`), ".data wbps=1Mi", ".data", ""},
		{`t.startsWith('@') && ` + isNot(`^@`+label+end), "@Data_1 wbps=1Mi", "Data_1", ""},
		{isNot(`^` + target() + end), "data wbps=1Mi", "data", ""},
	}
}

// limitCauses returns the causes of a wrong entry of limits.
func limitCauses() string {
	key := blank + `+` + keys(every) + `=`
	return chain("limits", append(append(targetCauses(), []cause{
		{is(after(blank + `*$`)), "/data", "", ""},
		{is(after(`(?:` + blank + `+[^= \t\r]+=[^ \t\r]*)*` + blank + `+[^= \t\r]+` + end)), "/data wbps:1Mi", "wbps:1Mi", "a word after the target"},
		unknownKey(isNot(after(`(?:`+key+`[^ \t\r]*)+`+blank+`*$`)), "/data "),
		{is(key + `[0-9.][^ \t\r/]*/[kKmMgGtT]`), "/data wbps=1Mi/Gi", "1Mi/Gi", "a rate"},
	}...), valueCauses(blank+`+`, "/data ", end)...))
}

// unknownKey is the cause of a key that no limit has. Its sample begins with a target, or with nothing.
func unknownKey(when, target string) cause { return cause{when, target + "rate=50Mi", "rate", ""} }

// overlap is the cause of two keys that set the same limit.
func overlap(when string) cause {
	return cause{when, "/data bps=1Mi rbps=1Mi", `"bps" and "rbps"`, ""}
}

// valueCauses returns the causes of a wrong value of a known key, between patterns for what is before the key and behind the
// value. Their samples begin with a target, or with nothing.
func valueCauses(before, target, behind string) []cause {
	key := before + keys(every) + `=`
	return []cause{
		{is(key + behind), target + "wbps=", "wbps", ""},
		{is(key + `-`), target + "wbps=-5Mi", "-5Mi", "a rate"},
		{is(key + `(?:M(?i:ax)|mA(?i:x)|maX|(?i:none|inf|infinity|unlimited))` + behind), target + "wbps=MAX", "MAX", ""},
		{is(key + `["\x27]`), target + "wbps='1'", "'1'", ""},
		{"", target + "wbps=1_000", "1_000", ""},
	}
}

// rateCauses returns the causes of wrong rates in a well-formed entry.
func rateCauses() string {
	return chain("limits", []cause{
		{is(repeated()), "/data wbps=1Mi wbps=1Mi", "wbps", ""},
		overlap(is(overlapping())),
		{is(fractions()), "/data wbps=65536.5", "65536.5", "a rate"},
		{`t.findAll(r'` + rates(every) + `').exists(rate, quantity(rate.split('=')[1]).compareTo(quantity('0')) == 0)`, "/data wbps=0", "wbps=0", "a rate of 0"},
		{
			`t.findAll(r'` + rates(isBytes) + `').exists(rate, quantity(rate.split('=')[1]).compareTo(quantity('` + mostBytes() + `')) > 0)`,
			"/data wbps=8Ei", "8Ei", "a rate",
		},
		{"", "/data wiops=4Gi", "4Gi", "a rate"},
	})
}

// weightCauses returns the causes of a wrong entry of weights.
func weightCauses() string {
	const weight = "weight"
	var b strings.Builder
	b.WriteString(chain(weight, []cause{{`t != 'rootfs' && ` + is(`^[^*/"@# \t\r][^ \t\r]*$`), "500x", "", ""}}))
	b.WriteString(chain("limits", targetCauses()))
	b.WriteString(chain(weight, []cause{
		{is(after(blank + `*$`)), "/data", "", ""},
		{is(after(blank + `+0*` + upTo(blkio.MaxWeight) + blank)), "/data 5 6", "6", "text"},
		{"", "/data 0", "0", ""},
	}))
	return b.String()
}

// duplicateCauses returns the cause of a duplicate target.
func duplicateCauses() string {
	const place = `"/data", first in entry 1`
	return `list.key[0].startsWith('weight.') ? ` + chain("weight", []cause{{"", "/data 5; /data 6", place, ""}}) +
		` : ` + chain("limits", []cause{{"", "/data wbps=1; /data rbps=1", place, ""}})
}

// keyCauses returns the causes of a wrong key.
func keyCauses() string {
	var b strings.Builder
	for _, c := range []struct{ pattern, sample, word string }{
		{`!key.matches(r'` + ofKind() + `') ? `, "none." + annotation.Domain + "/containers", ""},
		{`key.endsWith('/pod') ? `, "limits." + annotation.Domain + "/pod", "pod"},
		{`key.matches(r'/container[.]') ? `, "limits." + annotation.Domain + "/container.A", "A"},
		{``, "limits." + annotation.Domain + "/db", "db"},
	} {
		s := errorText(map[string]string{c.sample: "* wbps=1Mi"})
		if c.word != "" {
			s = strings.Replace(s, " "+strconv.Quote(c.word), "", 1)
		}
		b.WriteString(c.pattern + literal(s))
		if c.pattern != "" {
			b.WriteString("\n      : ")
		}
	}
	return b.String()
}
