package admission

import (
	"regexp"
	"strings"
	"testing"
)

// TestLiteral: text of the grammar is one string of CEL.
func TestLiteral(t *testing.T) {
	for text, want := range map[string]string{
		`a`: `'a'`, `it's`: `'it\'s'`, `write \" or \\`: `'write \\" or \\\\'`, "a\nb": `'a\\nb'`, "": `''`,
	} {
		if got := literal(text); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

// TestChain: each cause but the last has a condition, and no text of a sample is left.
func TestChain(t *testing.T) {
	got := chain("limits", []cause{
		{"t == 'a'", "/data bps=50Mi", "bps", ""},
		{"t == 'b'", "/data wbps=-5Mi", "-5Mi", "a rate"},
		{"t == 'c'", "/data wbps=0", "wbps=0", "a rate of 0"},
		{"", "/data", "", ""},
	})
	want := `t == 'a' ? 'unknown key (the keys are rbps, wbps, riops and wiops)'
      : t == 'b' ? 'a rate is negative (write a whole number such as 50Mi, or max for no limit)'
      : t == 'c' ? 'a rate of 0 stops all I/O (write max for no limit)'
      : 'no limit after the target (write for example "/data wbps=50Mi")'`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// TestSamples: a sample without a mistake, and one whose error quotes another word, are bugs
// of this package.
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

// TestPluginList: lists of required plugins in YAML that CEL can extend.
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

// TestMessagesOfSizes: the texts about sizes have the bounds of the grammar.
func TestMessagesOfSizes(t *testing.T) {
	v := values()
	for name, want := range map[string]string{
		"TooManyKeys": "more than 64 annotations", "TooMany": "more than 1024 entries", "TooLong": "more than 256 entries",
		"TooLarge": "longer than 64 KiB", "Empty": "the value is empty",
	} {
		if got, _ := v[name].(string); !strings.Contains(got, want) {
			t.Errorf("%s is %s", name, got)
		}
	}
}
