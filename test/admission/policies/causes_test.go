package policies

import (
	"regexp"
	"strings"
	"testing"
)

// TestLiteral verifies that text of the grammar is one string of CEL.
func TestLiteral(t *testing.T) {
	for text, want := range map[string]string{
		`a`: `'a'`, `it's`: `'it\'s'`, `write \" or \\`: `'write \\" or \\\\'`, "a\nb": `'a\\nb'`, "": `''`,
	} {
		if got := literal(text); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

// TestChain verifies that each cause but the last has a condition, and no text of a sample is left.
func TestChain(t *testing.T) {
	got := chain("limits", []cause{
		{"t == 'a'", "/data rate=50Mi", "rate", ""},
		{"t == 'b'", "/data wbps=-5Mi", "-5Mi", "a rate"},
		{"t == 'c'", "/data wbps=0", "wbps=0", "a rate of 0"},
		{"", "/data", "", ""},
	})
	want := `t == 'a' ? 'unknown key (the keys are rbps, wbps, riops and wiops, and for both directions bps and iops)'
      : t == 'b' ? 'a rate is negative (write a whole number such as 50Mi, or max for no limit)'
      : t == 'c' ? 'a rate of 0 stops all I/O (write max for no limit)'
      : 'no limit after the target (write for example "/data wbps=50Mi")'`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// explain returns the cause and the hint of the first cause in a chain that applies to an entry. It knows the
// conditions of the chains about whole entries.
func explain(t *testing.T, chain, entry string) string {
	t.Helper()
	for part := range strings.SplitSeq(chain, "\n      : ") {
		when, text, found := strings.Cut(part, " ? '")
		if !found {
			when, text = "", strings.TrimPrefix(part, "'")
		}
		applies := true
		for term := range strings.SplitSeq(when, " && ") {
			positive := strings.TrimPrefix(term, "!")
			arg := regexp.MustCompile(`^[^']*'(.*)'\)?$`).FindStringSubmatch(positive)
			holds := false
			switch {
			case term == "":
				holds = true
			case strings.HasPrefix(positive, "t.matches(r'"):
				holds = regexp.MustCompile(arg[1]).MatchString(entry)
			case strings.HasPrefix(positive, "t.startsWith('"):
				holds = strings.HasPrefix(entry, arg[1])
			case strings.HasPrefix(positive, "t != '"):
				holds = entry != arg[1]
			default:
				t.Fatalf("condition %s", term)
			}
			applies = applies && holds == (term == positive)
		}
		if applies {
			return strings.NewReplacer(`\\`, `\`, `\'`, `'`).Replace(strings.TrimSuffix(text, "'"))
		}
	}
	t.Fatalf("no cause of %q in %s", entry, chain)
	return ""
}

// TestEachCauseApplies verifies that each cause applies to its own sample, and that no earlier one does. Its text is the
// grammar's text about the sample, without the quoted word.
func TestEachCauseApplies(t *testing.T) {
	for kind, causes := range map[string]string{"limits": limitCauses(), "weight": weightCauses()} {
		for _, c := range targetCauses() {
			sample := c.sample[strings.LastIndexByte(c.sample, ';')+1:]
			if sample = strings.TrimSpace(sample); kind == "weight" && strings.HasPrefix(sample, "wbps=") {
				sample += " 5"
			}
			if got, want := explain(t, causes, sample), explain(t, chain("limits", []cause{{"", c.sample, c.word, c.noun}}), ""); got != want {
				t.Errorf("%s %q: %s, want %s", kind, sample, got, want)
			}
		}
	}
}

// TestCauses verifies that of an entry with several mistakes the first one is explained. A part of a quoted
// path is no mistake.
func TestCauses(t *testing.T) {
	const number = " (write a whole number such as 50Mi)"
	limits, weights := limitCauses(), weightCauses()
	for _, tt := range []struct{ entry, limits, weights string }{
		{"# @a wbps=1", `a comment must start its line (put a newline before "#")`, `a comment must start its line (put a newline before "#")`},
		{"@a\x7f wbps=", "control character in the entry (remove it)", "control character in the entry (remove it)"},
		{"rbps=1 wbps", `no target before the limits (write "/path", @VOLUME, rootfs or * first)`, `no target before the limits (write "/path", @VOLUME, rootfs or * first)`},
		{`"/a=b ..;# wbps=1`, `unterminated quote (write \" for a quote inside a quoted path)`, `unterminated quote (write \" for a quote inside a quoted path)`},
		{`"/a\"wbps=1" wbps`, "a word after the target is not key=value (write for example wbps=50Mi, without blanks in it)", "invalid weight (write a whole number from 1 to 10000; the default is 100)"},
		{`"/a wbps=1"`, `no limit after the target (write for example "/data wbps=50Mi")`, `no weight after the target (write for example "/data 500")`},
		{`"/../a" wbps=0x1`, `path contains ".." (write the path without it)`, `path contains ".." (write the path without it)`},
		{`"a/../b" 5`, "path is not absolute (write a path in the container that starts with /)", "path is not absolute (write a path in the container that starts with /)"},
		{"rootfs", `no limit after the target (write for example "/data wbps=50Mi")`, `no weight after the target (write for example "/data 500")`},
		{"500", `unknown target (write "/path", @VOLUME, rootfs or *)`, "invalid weight (write a whole number from 1 to 10000; the default is 100)"},
		{"* 5 6", "a word after the target is not key=value (write for example wbps=50Mi, without blanks in it)", `text after the weight (separate entries by ";")`},
		{"* 0005\t0", "a word after the target is not key=value (write for example wbps=50Mi, without blanks in it)", `text after the weight (separate entries by ";")`},
		{"/a wbps=1Mi rate=", "unknown key (the keys are rbps, wbps, riops and wiops, and for both directions bps and iops)", "invalid weight (write a whole number from 1 to 10000; the default is 100)"},
		{"/a wbps= riops=-1", "key has no value (write for example wbps=50Mi)", "invalid weight (write a whole number from 1 to 10000; the default is 100)"},
		{"/a wbps=-x", "a rate is negative (write a whole number such as 50Mi, or max for no limit)", "invalid weight (write a whole number from 1 to 10000; the default is 100)"},
		{"/a rbps=max wbps=50MB", "invalid quantity" + number, "invalid weight (write a whole number from 1 to 10000; the default is 100)"},
		{"/a wbps=mAX", "invalid rate (write max for no limit)", "invalid weight (write a whole number from 1 to 10000; the default is 100)"},
		{"/a wbps=Infinity", "invalid rate (write max for no limit)", "invalid weight (write a whole number from 1 to 10000; the default is 100)"},
		{`/a wbps="5`, "value is quoted (write it without quotes)", "invalid weight (write a whole number from 1 to 10000; the default is 100)"},
		{"/a wbps=1mi", "invalid quantity" + number, "invalid weight (write a whole number from 1 to 10000; the default is 100)"},
	} {
		if got := explain(t, limits, tt.entry); got != tt.limits {
			t.Errorf("limits %q: %s, want %s", tt.entry, got, tt.limits)
		}
		if got := explain(t, weights, tt.entry); got != tt.weights {
			t.Errorf("weights %q: %s, want %s", tt.entry, got, tt.weights)
		}
	}
}

// TestNoSampleIsLeft verifies that the words of samples do not get into messages, which are short strings of
// CEL with a hint.
func TestNoSampleIsLeft(t *testing.T) {
	chains := map[string]string{
		"claims": claimCauses(), "parameters": chain("limits", valueCauses(`^`, "/data ", `$`)), "keys": keyCauses(), "limits": limitCauses(), "rates": rateCauses(), "weights": weightCauses(), "duplicates": duplicateCauses(),
	}
	for name, text := range chains {
		found := regexp.MustCompile(`(?m)(?:: |\? |^)'((?:[^'\\]|\\.)*)'`).FindAllStringSubmatch(text, -1)
		if len(found) < 2 {
			t.Errorf("%s: %q", name, found)
		}
		for _, m := range found {
			cause, hint, hasHint := strings.Cut(m[1], " (")
			if !hasHint || !strings.HasSuffix(hint, ")") || len(m[1]) > 200 || regexp.MustCompile(`1Mi|bps=|50x|none\.|container\.A|Data_1|  `).MatchString(cause) || strings.TrimSpace(cause) != cause {
				t.Errorf("%s: %q", name, m[1])
			}
		}
	}
}

// TestSamples verifies that a sample without a mistake, and one whose error quotes another word, are bugs of
// this package.
func TestSamples(t *testing.T) {
	for _, c := range []cause{{"", "/data wbps=1Mi", "", ""}, {"", "/data bps=1Mi", "nothing", ""}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%+v is no bug", c)
				}
			}()
			chain("limits", []cause{c})
		}()
	}
}

// TestPluginList covers lists of required plugins in YAML that CEL can extend.
func TestPluginList(t *testing.T) {
	pattern := regexp.MustCompile(pluginList())
	for text, want := range map[string]bool{
		"": true, " \n": true, "[]": true, "[a]": true, "[a, b.c-d_1]": true, "[\n  a,\n  b\n]": true, `["a",'b']`: true,
		"- a": true, "- a\n- \"b\"\n": true, "\n - a\n - b ": true,
		"a": false, "[a": false, "[a] # b": false, "[a, [b]]": false, "[a b]": false, "[,]": false, "- a - b": false, "- a # b": false,
		"-a": false, "[&x a]": false, "{a: b}": false, "[a]\n[b]": false, "null": false,
	} {
		if got := pattern.MatchString(text); got != want {
			t.Errorf("%q matches %t", text, got)
		}
	}
}

// TestMessagesOfSizes verifies that the texts about sizes have the bounds of the grammar.
func TestMessagesOfSizes(t *testing.T) {
	v := values()
	for name, want := range map[string]string{
		"TooManyKeys": "more than 64 annotations", "TooMany": "more than 1024 entries", "TooLong": "more than 256 entries",
		"TooLarge": "longer than 64 KiB", "Empty": "the value is empty",
		"ClaimTooLarge": "longer than 4 KiB", "ClaimEmpty": "the value is empty", "RateTooLarge": "longer than 64 bytes",
	} {
		if got, _ := v[name].(string); !strings.Contains(got, want) {
			t.Errorf("%s is %s", name, got)
		}
	}
}
