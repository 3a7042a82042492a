package expect

import (
	"context"
	"path/filepath"

	"github.com/nri-blkio/nri-blkio/plugin/check"
	"github.com/nri-blkio/nri-blkio/plugin/manifest"
)

// Report has the results of the cases of a file.
type Report struct {
	Policy   string             `json:"policy"`   // path of the file
	File     string             `json:"file"`     // path of that of the cases
	Findings []manifest.Finding `json:"findings"` // in the manifests
	Cases    []CaseReport       `json:"cases"`
}

// CaseReport is the result of one case.
type CaseReport struct {
	Name        string       `json:"name"`
	Line        int          `json:"line"`
	Differences []Difference `json:"differences"`
	Notes       []string     `json:"notes,omitempty"`
}

// Failures returns the number of cases with differences.
func (r *Report) Failures() (n int) {
	for i := range r.Cases {
		if len(r.Cases[i].Differences) > 0 {
			n++
		}
	}
	return n
}

// HasErrors reports whether a case has differences, or a manifest has errors.
func (r *Report) HasErrors() bool { return r.Failures() > 0 || manifest.HasErrors(r.Findings) }

// Suite compares the decisions of a policy with the cases of a file.
type Suite struct {
	Checker *check.Checker
	Policy  string // path of the policy, for the report
	File    string // path of the file of the cases. The paths of manifests in it are relative to its directory.
	Cases   []Case
	// Read reads manifests: files, or directories of them.
	Read func(paths ...string) (manifest.Set, error)
}

// Run compares all cases. Cases that name a pod but no manifest have a pod of manifests. It reads each manifest once.
// The error is that of a manifest that cannot be read.
func (s *Suite) Run(ctx context.Context, manifests ...string) (*Report, error) {
	read := library{read: s.Read, sets: map[string]*manifest.Set{}, findings: []manifest.Finding{}}
	if err := read.add("", manifests...); err != nil {
		return nil, err
	}
	out := Report{Policy: s.Policy, File: s.File, Cases: make([]CaseReport, 0, len(s.Cases))}
	for i := range s.Cases {
		c := &s.Cases[i]
		name := s.manifestOf(c)
		if name != "" {
			if err := read.add(name, name); err != nil {
				return nil, err
			}
		}
		out.Cases = append(out.Cases, c.run(ctx, s.Checker, read.sets[name]))
	}
	out.Findings = read.findings
	return &out, nil
}

// manifestOf returns the path of the manifest of a case; "" for those of the caller.
func (s *Suite) manifestOf(c *Case) string {
	name := filepath.FromSlash(c.Pod.Manifest)
	if name == "" || filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(filepath.Dir(s.File), name)
}

// run runs one case with the manifests that have its pod.
func (c *Case) run(ctx context.Context, checker *check.Checker, set *manifest.Set) CaseReport {
	out := CaseReport{Name: c.Name, Line: c.Line, Differences: []Difference{}}
	if m, err := c.Pod.Find(set); err != nil {
		out.Differences = append(out.Differences, Difference{Field: "pod", Got: err.Error(), Want: "one"})
	} else if found, notes := c.Compare(ctx, checker, m); len(found) > 0 {
		out.Differences, out.Notes = found, notes
	}
	return out
}

// library has the manifests of a run, each read once.
type library struct {
	read     func(paths ...string) (manifest.Set, error)
	sets     map[string]*manifest.Set
	findings []manifest.Finding
}

// add reads manifests, unless there are some with this name.
func (l *library) add(name string, paths ...string) error {
	if l.sets[name] != nil {
		return nil
	}
	set, err := l.read(paths...)
	if err != nil {
		return err
	}
	l.sets[name] = &set
	l.findings = append(l.findings, set.Findings...)
	return nil
}
