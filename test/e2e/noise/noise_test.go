package noise

import (
	"testing"

	"github.com/nri-blkio/nri-blkio/policy"
)

// TestParse: the report of a job that reads, of one that writes, and what is not a report.
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

// TestPolicy: the plugin accepts the policy.
func TestPolicy(t *testing.T) {
	if _, err := policy.ParseFile([]byte(PolicyHead + Policy)); err != nil {
		t.Error(err)
	}
}
