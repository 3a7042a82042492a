package expect

import (
	"errors"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/plugin/manifest"
)

// suiteOf returns a suite whose manifests have one pod each, with the name of the path. read gets the paths that are
// read, and "missing.yaml" cannot be read.
func suiteOf(t *testing.T, text string, read *[]string) *Suite {
	t.Helper()
	cases, err := Parse([]byte(fileHead + text))
	if err != nil {
		t.Fatal(err)
	}
	return &Suite{
		Checker: testChecker(t), Policy: "policy.yaml", File: filepath.FromSlash("tests/cases.yaml"), Cases: cases,
		Read: func(paths ...string) (manifest.Set, error) {
			var set manifest.Set
			for _, p := range paths {
				*read = append(*read, p)
				if filepath.Base(p) == "missing.yaml" {
					return set, errors.New("no such file")
				}
				pod := volumePod("batch-1", nil)
				pod.Name = filepath.Base(p)
				set.Pods = append(set.Pods, *pod)
				set.Findings = append(set.Findings, manifest.Finding{Severity: manifest.Warning, Text: p})
			}
			return set, nil
		},
	}
}

// TestSuite verifies that each manifest is read once, relative to the file of the cases, and that a case without one
// has the pods of the caller.
func TestSuite(t *testing.T) {
	var read []string
	abs, err := filepath.Abs("abs.yaml")
	if err != nil {
		t.Fatal(err)
	}
	s := suiteOf(t, `- {name: own, pod: {namespace: batch-1}, expect: {rule: batch}}
- {name: other, pod: {manifest: pods/a.yaml}, expect: {rule: none}}
- {name: again, pod: {manifest: pods/a.yaml, name: a.yaml}, expect: {rule: batch}}
- {name: absolute, pod: {manifest: `+abs+`}, expect: {rule: batch}}
- {name: given, pod: {name: given.yaml}, expect: {rule: batch}}
- {name: absent, pod: {name: x}, expect: {rule: batch}}
`, &read)
	r, err := s.Run(t.Context(), "given.yaml")
	if err != nil {
		t.Fatal(err)
	}
	a := filepath.FromSlash("tests/pods/a.yaml")
	if want := []string{"given.yaml", a, abs}; !slices.Equal(read, want) {
		t.Errorf("read %q, want %q", read, want)
	}
	want := map[string][]Difference{
		"own": {}, "again": {}, "absolute": {}, "given": {},
		"other":  {{Field: "rule", Got: "batch", Want: "none"}},
		"absent": {{Field: "pod", Got: `none with name "x"`, Want: "one"}},
	}
	got := map[string][]Difference{}
	for _, c := range r.Cases {
		got[c.Name] = c.Differences
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	if r.Failures() != 2 || len(r.Findings) != 3 || r.Policy != "policy.yaml" || r.File != s.File {
		t.Errorf("%+v", r)
	}
}

// TestSuiteUnreadable verifies that a manifest that cannot be read is an error, of the caller's as of a case.
func TestSuiteUnreadable(t *testing.T) {
	var read []string
	s := suiteOf(t, "- {name: a, pod: {manifest: missing.yaml}, expect: {rule: none}}\n", &read)
	if r, err := s.Run(t.Context()); err == nil {
		t.Errorf("%+v", r)
	}
	s.Cases = nil
	if r, err := s.Run(t.Context(), "missing.yaml"); err == nil {
		t.Errorf("%+v", r)
	}
	r, err := s.Run(t.Context())
	if err != nil || r.Cases == nil || r.Findings == nil || r.HasErrors() {
		t.Errorf("without cases: %+v, %v", r, err)
	}
}

// TestReportHasErrors verifies that a difference is an error, and an error in a manifest too.
func TestReportHasErrors(t *testing.T) {
	for _, tt := range []struct {
		report Report
		want   bool
	}{
		{Report{Cases: []CaseReport{{Differences: []Difference{}}}}, false},
		{Report{Cases: []CaseReport{{}, {Differences: []Difference{{}}}}}, true},
		{Report{Findings: []manifest.Finding{{Severity: manifest.Warning}}}, false},
		{Report{Findings: []manifest.Finding{{Severity: manifest.Error}}}, true},
	} {
		if got := tt.report.HasErrors(); got != tt.want {
			t.Errorf("%+v: %t", tt.report, got)
		}
	}
}
