package suite

import (
	"strings"
	"testing"
	"time"

	"github.com/nri-blkio/nri-blkio/test/node"
)

// requestOf returns the request of an environment, with a cache directory of the test's own.
func requestOf(t *testing.T, env map[string]string) (request, error) {
	t.Helper()
	t.Setenv("NRI_BLKIO_CACHE", t.TempDir())
	return requestFrom(node.Config{}, func(name string) string { return env[name] })
}

// TestRequest verifies that a table comes with its tests, as a proof, and that variables overrule what it comes with.
func TestRequest(t *testing.T) {
	r, err := requestOf(t, nil)
	if err != nil || r.proof || r.tests != "" || len(r.folders) != len(testFolders(t)) || len(r.runs()) != 1 {
		t.Errorf("without variables: %+v, %v, want all folders on one node", r, err)
	}
	r, err = requestOf(t, map[string]string{"E2E_RUN": "^TestStorage"})
	if err != nil || len(r.folders) != 1 {
		t.Errorf("some tests, of which one needs a proof: %+v, %v, want the folder of the others", r, err)
	}
	r, err = requestOf(t, map[string]string{"TABLE": "soak", "SOAK_PODS": "7"})
	if err != nil || !r.proof || r.tests != "^(TestSoak)$" || len(r.folders) != 1 || r.soak != "7" || r.nodes() != 1 {
		t.Errorf("a soak: %+v, %v, want a proof of TestSoak with 7 pods", r, err)
	}
	r, err = requestOf(t, map[string]string{"TABLE": "scenarios", "E2E_RUN": "^TestScenarios$/^nothing$"})
	if err != nil || r.tests != "^TestScenarios$/^nothing$" || r.scenario != "60s" || r.measured("c") != "60s, c" {
		t.Errorf("a table of some scenarios: %+v, %v", r, err)
	}
	for _, env := range []map[string]string{{"TABLE": "x"}, {"E2E_PART": "x"}, {"E2E_RUN": "^TestX$"}, {"E2E_RUN": "^TestSoak$"}, {"NODE_MATRIX": "x"}, {"NODE_MATRIX": "row", "E2E_RUN": "^TestLimits$"}} {
		if r, err := requestOf(t, env); err == nil {
			t.Errorf("%v: %+v, want an error", env, r)
		}
	}
}

// TestTablesHaveTests verifies that each table is made of tests that exist.
func TestTablesHaveTests(t *testing.T) {
	for name := range tables(node.Config{}) {
		if _, err := requestOf(t, map[string]string{"TABLE": name}); err != nil {
			t.Errorf("table %s: %v", name, err)
		}
	}
}

// TestMatrix verifies that on a kernel that lacks something the tests about that run alone, and that each node is another.
func TestMatrix(t *testing.T) {
	r, err := requestOf(t, map[string]string{"NODE_MATRIX": "full"})
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, run := range r.runs() {
		want, tests := "", kernelTests[run.cfg.Kernel]
		if tests != nil {
			want = only(tests...)
		}
		if run.tests != want || len(run.folders) == 0 || tests != nil && len(run.folders) > len(tests) {
			t.Errorf("the tests on %s are %q of %d folders, want %q", run.cfg.String(), run.tests, len(run.folders), want)
		}
		seen[run.cfg.String()] = true
	}
	if want := 4 + 2*(2*2*2+2); len(seen) != want || len(r.runs()) != want {
		t.Errorf("%d nodes, %d different ones, want %d", len(r.runs()), len(seen), want)
	}
}

// TestCommand verifies that the tests of a folder end before the node does, which leaves time for their report, and
// that those of a proof are left out otherwise.
func TestCommand(t *testing.T) {
	now := time.Now()
	r := run{deadline: now.Add(time.Hour), options: options{tests: "^TestA$"}}
	got := strings.Join(r.command(folder{name: "limits", proofs: []string{"TestSoak", "TestB"}}, now), " ")
	if want := "/payload/limits.test -test.v -test.timeout=59m0s -proof=false -test.run=^TestA$ -test.skip=^(TestSoak|TestB)$"; got != want {
		t.Errorf("the command is %q, want %q", got, want)
	}
	r = run{options: options{proof: true, scenario: "10s", soak: "7", seed: "1"}}
	got = strings.Join(r.command(folder{name: "limits"}, now), " ")
	if want := "/payload/limits.test -test.v -test.timeout=0s -proof=true -scenario=10s -soak=7 -soak-seed=1"; got != want {
		t.Errorf("the command is %q, want %q", got, want)
	}
}
