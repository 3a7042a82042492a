package noise

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nri-blkio/nri-blkio/policy"
)

// TestParse verifies that the report of a job that reads, and of one that writes, can be parsed, and that other
// text is an error.
func TestParse(t *testing.T) {
	const idle = `{"iops": 0, "clat_ns": {"N": 0}}`
	const busy = `{"iops": 1500.5, "clat_ns": {"percentile": {"95.000000": 1000, "99.000000": 2700000}}}`
	want := Result{Rate: 1500.5, P99: 2.7}
	for name, text := range map[string]string{
		"reads":  "fio: a warning\n" + `{"fio version": "fio-3.39", "jobs": [{"read": ` + busy + `, "write": ` + idle + `}]}`,
		"writes": `{"jobs": [{"read": ` + idle + `, "write": ` + busy + `}]}`,
	} {
		if got, err := parse(text); err != nil || got != want {
			t.Errorf("%s: parse returned %v, %v, want %v", name, got, err, want)
		}
	}
	for _, text := range []string{"", "fio: no such disk", "{", `{"jobs": []}`, `{"jobs": [{}, {}]}`} {
		if got, err := parse(text); err == nil {
			t.Errorf("parse(%q) is %v, want an error", text, got)
		}
	}
}

// TestVictimArgs verifies that fio gets one file: of several options it uses all.
func TestVictimArgs(t *testing.T) {
	d := Disk{Dir: "/mnt"}
	for want, args := range map[string][]string{"--filename=/mnt/victim": {"--rw=read"}, "--filename=/mnt/x": {"--filename=/mnt/x", "--rw=read"}} {
		var files []string
		for _, arg := range d.VictimArgs(args...) {
			if strings.HasPrefix(arg, "--filename=") {
				files = append(files, arg)
			}
		}
		if !slices.Equal(files, []string{want}) {
			t.Errorf("VictimArgs(%q) has the files %q, want %s", args, files, want)
		}
	}
}

func TestLineOf(t *testing.T) {
	const text = "254:14 enable=0 ctrl=auto\n254:144 enable=1 ctrl=user rpct=0.00\n"
	for number, want := range map[string]string{"254:144": "enable=1 ctrl=user rpct=0.00", "254:14": "enable=0 ctrl=auto", "254:1": ""} {
		if got := lineOf(text, number); got != want {
			t.Errorf("line of device %s is %q, want %q", number, got, want)
		}
	}
}

// TestPolicies verifies that the plugin accepts the policies, and that one of them sets the period.
func TestPolicies(t *testing.T) {
	if got := PolicyWith(Headroom, 0); got != Policy {
		t.Errorf("the policy with the model of the disk is\n%s\nwant\n%s", got, Policy)
	}
	for _, text := range []string{Policy, PolicyWith(1, 0), PolicyWith(0.97, time.Millisecond), PolicyWith(0.97, 43*time.Millisecond)} {
		if _, err := policy.ParseFile([]byte(PolicyHead + text)); err != nil {
			t.Errorf("parse the policy: %v:\n%s", err, text)
		}
	}
	p, err := policy.ParseFile([]byte(PolicyHead + PolicyWith(Headroom, 43*time.Millisecond)))
	if err != nil {
		t.Fatal(err)
	}
	rule := p.DiskRule(policy.Disk{Name: SharedDisk})
	if rule.QOS == nil || rule.QOS.Period() != 43*time.Millisecond || rule.Model.Rbps != 60*MiB || rule.Model.WRandIOPS != 1500 {
		t.Errorf("the rule of the shared disk has model %+v and QOS %+v, want a period of 43 ms, 60 MiB/s of reads and 1500 random writes", rule.Model, rule.QOS)
	}
}
