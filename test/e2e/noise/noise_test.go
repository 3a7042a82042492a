package noise

import (
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
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	for _, text := range []string{"", "fio: no such disk", "{", `{"jobs": []}`, `{"jobs": [{}, {}]}`} {
		if got, err := parse(text); err == nil {
			t.Errorf("%q is %v", text, got)
		}
	}
}

func TestLineOf(t *testing.T) {
	const text = "254:14 enable=0 ctrl=auto\n254:144 enable=1 ctrl=user rpct=0.00\n"
	for number, want := range map[string]string{"254:144": "enable=1 ctrl=user rpct=0.00", "254:14": "enable=0 ctrl=auto", "254:1": ""} {
		if got := lineOf(text, number); got != want {
			t.Errorf("%s: %q", number, got)
		}
	}
}

// TestPolicies verifies that the plugin accepts the policies, and that one of them sets the period.
func TestPolicies(t *testing.T) {
	if got := PolicyWith(0.97, 0); got != Policy {
		t.Errorf("with 97 %% of the disk:\n%s\nwant\n%s", got, Policy)
	}
	for _, text := range []string{Policy, PolicyWith(1, 0), PolicyWith(0.97, time.Millisecond), PolicyWith(0.97, 43*time.Millisecond)} {
		if _, err := policy.ParseFile([]byte(PolicyHead + text)); err != nil {
			t.Errorf("%v:\n%s", err, text)
		}
	}
	p, err := policy.ParseFile([]byte(PolicyHead + PolicyWith(1, 43*time.Millisecond)))
	if err != nil {
		t.Fatal(err)
	}
	rule := p.DiskRule(policy.Disk{Name: SharedDisk})
	if rule.QOS == nil || rule.QOS.Period() != 43*time.Millisecond || rule.Model.Rbps != 60*MiB || rule.Model.WRandIOPS != 1500 {
		t.Errorf("%+v, %+v", rule.Model, rule.QOS)
	}
}
