package policies

import (
	"regexp"
	"strings"
	"testing"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// TestClaimEntry verifies that each entry that the grammar accepts matches. Another one that matches has another error: its
// rates are checked apart.
func TestClaimEntry(t *testing.T) {
	pattern := regexp.MustCompile(claimEntry())
	for _, s := range []string{
		"wbps=50Mi", " rbps=max\twiops=2k \r", "wbps=1.5Ki riops=1e3", "wbps=0", "wbps=1 wbps=1", "bps=1 iops=2", "bps=1 rbps=2", "wbps=0.3Mi", "riops=4Gi",
		"riops=1;riops=3", // the numbers of a rate that grows
		"wbps", "wbps=", "wbps =1", "wpbs=1", "WBPS=1", "* wbps=1", "/data wbps=1", "wbps=1 /data", "wbps=50MB", "wbps=-1", "wbps=1,rbps=1", "wbps=1rbps=1", `"a" wbps=1`, "wbps=\"1\"",
	} {
		_, err := annotation.ParseClaim("data", s, 1<<30)
		isRate := err != nil && regexp.MustCompile("whole|too large|stops all|duplicate|same limit").MatchString(err.Cause)
		if got := pattern.MatchString(s); got != (err == nil || isRate) {
			t.Errorf("%q matches %t; the grammar: %v", s, got, err)
		}
	}
}

// TestClaimCauses verifies that the cause of a wrong entry is that of the grammar, without the quoted words.
func TestClaimCauses(t *testing.T) {
	causes := claimCauses()
	for entry, want := range map[string]string{
		"wbps=1\x7f":         "control character in the entry (remove it)",
		"* wbps=1Mi":         `the first word is a target (the limits of a claim have none; write for example "wbps=50Mi")`,
		"@data":              `the first word is a target (the limits of a claim have none; write for example "wbps=50Mi")`,
		`"/a b" wbps=1Mi`:    `the first word is a target (the limits of a claim have none; write for example "wbps=50Mi")`,
		"wbps":               "a word is not key=value (write for example wbps=50Mi, without blanks in it)",
		"wbps=1Mi /data":     "a word is not key=value (write for example wbps=50Mi, without blanks in it)",
		"wbps=1Mi rate=2Mi":  "unknown key (the keys are rbps, wbps, riops and wiops, and for both directions bps and iops)",
		"/data=1":            "unknown key (the keys are rbps, wbps, riops and wiops, and for both directions bps and iops)",
		"wbps=1Mi rbps=":     "key has no value (write for example wbps=50Mi)",
		"wbps=-1":            "a rate is negative (write a whole number such as 50Mi, or max for no limit)",
		"wbps=None riops=1":  "invalid rate (write max for no limit)",
		"wbps='1'":           "value is quoted (write it without quotes)",
		"rbps=max wbps=50MB": "invalid quantity (write a whole number such as 50Mi)",
	} {
		if got := explain(t, causes, entry); got != want {
			t.Errorf("%q: %s, want %s", entry, got, want)
		}
		if _, err := annotation.ParseClaim("data", entry, 1<<30); err == nil {
			t.Errorf("%q is valid", entry)
		}
	}
}

// TestParameters verifies that the keys of rates in a class that are read are those with the prefix of the plugin,
// and that each rate that the grammar accepts matches.
func TestParameters(t *testing.T) {
	key, rate := regexp.MustCompile(parameter()), regexp.MustCompile(parameterRate())
	for text, want := range map[string]bool{
		"blkio.noderesource.dev/wbps": true, "blkio.noderesource.dev/iops": true, "wbps": false, "iops": false, "blkioXnoderesource.dev/riops": false, "blkio.noderesource.dev/wpbs": false,
		"limits.blkio.noderesource.dev/wbps": false, "example.com/wbps": false, "blkio.noderesource.dev/wbps/a": false,
	} {
		if key.MatchString(text) != want {
			t.Errorf("%s matches %t", text, !want)
		}
	}
	for _, text := range []string{"50Mi", "max", "0", "1e3", "", " 1", "1 ", "1Mi rbps=1", "50MB", "1\n", "-1"} {
		_, p := annotation.ParseAmount(blkio.Wbps, text)
		if got := rate.MatchString("wbps=" + text); got != (p == nil) {
			t.Errorf("%q matches %t; the grammar: %v", text, got, p)
		}
	}
	if rate.MatchString("rate=1") || !rate.MatchString("bps=1") {
		t.Error("an unknown key matches, or a known one does not")
	}
}

// TestNoMistake verifies that a sample of a claim without a mistake is a bug of this package.
func TestNoMistake(t *testing.T) {
	defer func() {
		if text, _ := recover().(string); !strings.Contains(text, "wbps=1Mi") {
			t.Errorf("no panic: %q", text)
		}
	}()
	claimText("wbps=1Mi")
}
