package policies

import (
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

func TestUpTo(t *testing.T) {
	for _, most := range []int{1, 7, 9, 10, 36, 99, 100, 105, 999, 1024, 10000} {
		pattern := regexp.MustCompile(`^` + upTo(most) + `$`)
		for i := range 10*most + 11 {
			if got, want := pattern.MatchString(strconv.Itoa(i)), 1 <= i && i <= most; got != want {
				t.Errorf("up to %d: %d matches %t", most, i, got)
			}
		}
		if pattern.MatchString("01") || pattern.MatchString("") {
			t.Errorf("up to %d: matches 01 or nothing", most)
		}
	}
}

// TestRate verifies that each rate that the grammar accepts matches. Another text that matches has another
// error.
func TestRate(t *testing.T) {
	pattern := regexp.MustCompile(`^` + rate() + `$`)
	for _, s := range []string{
		"max", "0", "1", "+1", "007", "1.", "2.0", "0.5k", ".5M", "1.5Ki", "1e3", "1E3", "1.5e3", "1e+3", "0.000000001e27", "1e018", "1E", "8Ei", "1e36",
		strings.Repeat("0", 39) + "7", strings.Repeat("0", 40) + "7", "1." + strings.Repeat("0", 9), "1." + strings.Repeat("0", 10),
		"", "+", ".", "-1", "1m", "1u", "1n", "50MB", "50mi", "10K", "1e", "1e-3", "1e37", "1e2147483647", "1_0", "MAX", "1,5", "1 ", "1.2.3", "0x1", "1ki", "5+3", "٣",
	} {
		_, p := annotation.ParseAmount(blkio.Wbps, s)
		if got := pattern.MatchString(s); p == nil && !got || got && p != nil && !strings.Contains(p.Cause, "too large") && !strings.Contains(p.Cause, "whole") {
			t.Errorf("%q matches %t; the grammar: %v", s, got, p)
		}
	}
}

// TestFractions verifies that a rate that is a fraction matches, unless its suffix or exponent may make it
// whole.
func TestFractions(t *testing.T) {
	pattern := regexp.MustCompile(fractions())
	for s, want := range map[string]bool{
		"1.5": true, "1.0": false, "1.": false, "1": false, ".5": true, "1.50": true, "0.001": true, "1.05 riops=1": true,
		"1.5k": false, "1.0005k": true, "1.00050k": true, "1.000k": false, "1.1234k": true,
		"1.000001M": false, "1.0000001M": true, "1.000000001G": false, "1.5e3": false, "1.5Ki": false, "max": false,
	} {
		if got := pattern.MatchString(" wbps=" + s); got != want {
			t.Errorf("%s matches %t", s, got)
		}
		if _, p := annotation.ParseAmount(blkio.Wbps, s); want && !strings.Contains(s, " ") && p == nil {
			t.Errorf("%s is a valid rate", s)
		}
	}
}

// TestKeys verifies that keys of each kind and scope are valid, in the domain and no other.
func TestKeys(t *testing.T) {
	own, known, whole := regexp.MustCompile(ours()), regexp.MustCompile(ofKind()), regexp.MustCompile(validKey())
	for key, want := range map[string][3]bool{
		"limits.blkio.noderesource.dev/containers":                           {true, true, true},
		"weight.blkio.noderesource.dev/pod-total":                            {true, true, true},
		"class.blkio.noderesource.dev/container.a-1":                         {true, true, true},
		"limits.blkio.noderesource.dev/container." + strings.Repeat("a", 63): {true, true, true},
		"limits.blkio.noderesource.dev/container." + strings.Repeat("a", 64): {true, true, false},
		"limits.blkio.noderesource.dev/container.-a":                         {true, true, false},
		"limits.blkio.noderesource.dev/container.":                           {true, true, false},
		"limits.blkio.noderesource.dev/pod":                                  {true, true, false},
		"limits.blkio.noderesource.dev/containers/a":                         {true, true, false},
		"limits.blkio.noderesource.dev":                                      {true, true, true},
		"class.blkio.noderesource.dev":                                       {true, true, true},
		"limits.blkio.noderesource.dev/":                                     {true, true, false},
		"blkio.noderesource.dev":                                             {true, false, false},
		"a.limits.blkio.noderesource.dev/containers":                         {true, false, false},
		"blkio.noderesource.dev/containers":                                  {true, false, false},
		"xblkio.noderesource.dev/containers":                                 {},
		"limits.blkio.noderesource.dev.example.com/containers":               {},
		"example.com/limits.blkio.noderesource.dev":                          {},
		"limits-blkio-noderesource-dev/containers":                           {},
		"required-plugins.noderesource.dev":                                  {},
	} {
		if got := [3]bool{own.MatchString(key), known.MatchString(key), whole.MatchString(key)}; got != want {
			t.Errorf("%s: own, known and valid are %v, want %v", key, got, want)
		}
		if got := annotation.Concerns(map[string]string{key: ""}); got != want[0] {
			t.Errorf("%s: the plugin's is %t", key, got)
		}
	}
}

// TestOfClaim verifies that the values of pods' annotations match that the grammar takes for those of claims.
func TestOfClaim(t *testing.T) {
	pattern := regexp.MustCompile(ofClaim())
	check := func(value string) bool {
		of := annotation.Parse(map[string]string{claimKey: value}).OfClaim() != nil
		if got := pattern.MatchString(value); got != of {
			t.Errorf("%q matches %t; the grammar: %t", value, got, of)
		}
		return of
	}
	if !check("wbps=50Mi riops=100+3/Gi") || check("* wbps=50Mi") || check("wbps=50Mi; /data rbps=1") {
		t.Error("the grammar has changed")
	}
	parts := []string{"wbps=1Mi", "x.y=", "=", ";", "\n", "#", " ", "\t", "\r", "* rbps=1", `"/a;b"`, "/a=b", "@a", "a"}
	random, hits := rand.New(rand.NewPCG(1, 2)), 0
	for range 50_000 {
		var value strings.Builder
		for range 1 + random.IntN(8) {
			value.WriteString(parts[random.IntN(len(parts))])
		}
		if check(value.String()) {
			hits++
		}
	}
	if hits < 500 {
		t.Errorf("%d values are those of claims", hits)
	}
}

// TestOfPod verifies that those entries of a claim match that the grammar takes for those of pods.
func TestOfPod(t *testing.T) {
	pattern := regexp.MustCompile(ofPod())
	for _, entry := range []string{
		"* wbps=1", "rootfs wbps=1", "/data wbps=1", `"/a b" wbps=1`, "@data wbps=1", " /data", "@", "/", "*",
		`"/a wbps=1`, `"/a=b c" wbps=1`, "wbps=1", "** wbps=1", "rootfsx wbps=1", "/a=b wbps=1", `"a=b" wbps=1`, "data wbps=1", "#a", "*=1", "pvc wbps=1",
	} {
		_, err := annotation.ParseClaim("data", entry, 1<<30)
		if got, of := pattern.MatchString(entry), err != nil && err.Reason == annotation.OfPod; got != of {
			t.Errorf("%q matches %t; the grammar: %v", entry, got, err)
		}
	}
}

// TestOverlapping verifies which limits have two keys for one limit, or a key twice.
func TestOverlapping(t *testing.T) {
	both, same := regexp.MustCompile(overlapping()), regexp.MustCompile(repeated())
	for limits, want := range map[string][2]bool{
		" wbps=1 wbps=2": {true, true}, " iops=1\triops=3 iops=2": {true, true}, " bps=1 rbps=2": {true, false}, " wbps=1 riops=2 bps=3": {true, false},
		" iops=1 wiops=2": {true, false}, " riops=1 iops=2": {true, false}, " bps=1 iops=2": {}, " rbps=1 wbps=2 riops=3 wiops=4": {}, " wbps=1 iops=2": {},
	} {
		if got := [2]bool{both.MatchString(limits), same.MatchString(limits)}; got != want {
			t.Errorf("%q: overlapping and repeated are %v, want %v", limits, got, want)
		}
		if errs := annotation.Parse(map[string]string{claimKey: "*" + limits}).Each().Errors(); len(errs) > 0 != want[0] {
			t.Errorf("%q: %v", limits, errs)
		}
	}
}

// TestTokens verifies that a value is split as the grammar splits it. Comments begin with a newline.
func TestTokens(t *testing.T) {
	pattern := regexp.MustCompile(tokens)
	for value, want := range map[string][]string{
		"":                      nil,
		" ; \n;":                nil,
		"a;b":                   {"a", "b"},
		" a ;\tb\r\n":           {" a ", "\tb\r"},
		"#a\nb":                 {"b"},
		"b\n \t#a;c\nd":         {"b", "d"},
		"a;#b\nc":               {"a", "#b", "c"},
		";#b":                   {"#b"},
		`"a;b" c;d`:             {`"a;b" c`, "d"},
		"\"a\nb":                {`"a`, "b"},
		`"a\";b" c`:             {`"a\";b" c`},
		`"a;b`:                  {`"a`, "b"}, // for the grammar one entry, and wrong as well
		`a"b;c"`:                {`a"b`, `c"`},
		"/a wbps=1\n# b\n# c\n": {"/a wbps=1"},
	} {
		got := slices.DeleteFunc(pattern.FindAllString("\n"+value, -1), func(s string) bool { return strings.HasPrefix(s, "\n") })
		if len(got) == 0 {
			got = nil
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%q: -want +got:\n%s", value, diff)
		}
	}
}

// TestEntries covers entries of limits and of weights, the limits without the target, and targets that
// are no files of the container.
func TestEntries(t *testing.T) {
	limit, share, rest := regexp.MustCompile(limitsEntry()), regexp.MustCompile(weightEntry()), regexp.MustCompile(limits())
	unclean := regexp.MustCompile(root + "|" + parent)
	for _, target := range []string{"*", "rootfs", "@data", "/a", "/a/", "/..a/b..", "//a/./b", `"/a b;c"`, `"/a\"b\\c"`, `/a"b`, `/"`, "/日本", `"/a wbps=1 "`, `"/a..\""`, "/a/..b"} {
		if !limit.MatchString(" "+target+"\twbps=1Mi  riops=max\r") || !share.MatchString(target+" 0500 ") || unclean.MatchString(target+" 5") {
			t.Errorf("target %s is rejected", target)
		}
		if got := rest.FindString(target + " wbps=1Mi riops=2 "); got != " wbps=1Mi riops=2 " {
			t.Errorf("target %s: the limits are %q", target, got)
		}
	}
	for _, target := range []string{"", "a", "@", "@A", "**", `"/a`, `"a"`, `"/a\n"`, `"*"`, "./a", "\"/a\tb\"", `"/a"b`} {
		if limit.MatchString(target+" wbps=1Mi") || share.MatchString(target+" 5") {
			t.Errorf("target %s is accepted", target)
		}
	}
	for _, target := range []string{"/", "//", "/.", "/./", "/..", "/a/..", "/../a", "/a/../b", `"/"`, `"/./"`, `"/.."`, `"/a b/../c"`, `"/a\"/.."`} {
		if !unclean.MatchString(" " + target + " wbps=1Mi") {
			t.Errorf("target %s is accepted", target)
		}
	}
}
