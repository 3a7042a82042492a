package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/nri-blkio/nri-blkio/internal/terminal"
	"github.com/nri-blkio/nri-blkio/plugin/check"
	"github.com/nri-blkio/nri-blkio/plugin/expect"
	"github.com/nri-blkio/nri-blkio/plugin/manifest"
)

// expectReport is the output of check --expect.
type expectReport struct {
	Policy   string             `json:"policy"`
	File     string             `json:"file"`
	Findings []manifest.Finding `json:"findings"` // in the manifests
	Cases    []caseReport       `json:"cases"`
}

// caseReport is the result of one case.
type caseReport struct {
	Name        string              `json:"name"`
	Line        int                 `json:"line"`
	Differences []expect.Difference `json:"differences"`
	Notes       []string            `json:"notes,omitempty"`
}

// expect compares the decisions of a policy with those that a file expects.
func (a *app) expect(ctx context.Context, o *checkOptions) error {
	if a.opts.policy == "" {
		return usage(errors.New("--expect: name the policy to test with --policy"))
	}
	data, err := readSmall(o.expect)
	if err != nil {
		return named(fmt.Errorf("read tests: %w", err))
	}
	cases, err := expect.Parse(data)
	if err != nil {
		return usage(fmt.Errorf("read %s: %w", o.expect, err))
	}
	p, err := a.opts.loadPolicy()
	if err != nil {
		return err
	}
	a.warnUnreached(p)
	report := expectReport{Policy: a.opts.policy, File: o.expect, Cases: make([]caseReport, 0, len(cases))}
	manifests := manifestCache{app: a, sets: map[string]*manifest.Set{}, findings: []manifest.Finding{}}
	if err := manifests.add("", o.files...); err != nil {
		return err
	}
	checker := check.Checker{Policy: p, Handler: o.handler}
	for i := range cases {
		if err := report.run(ctx, &cases[i], &checker, &manifests); err != nil {
			return err
		}
	}
	report.Findings = manifests.findings
	if err := a.print(o.output, report, report.write); err != nil {
		return err
	}
	if report.failures() > 0 || hasErrors(report.Findings) {
		return findings()
	}
	return nil
}

// run runs one case.
func (r *expectReport) run(ctx context.Context, c *expect.Case, checker *check.Checker, manifests *manifestCache) error {
	name := filepath.FromSlash(c.Pod.Manifest)
	if name != "" {
		if !filepath.IsAbs(name) {
			name = filepath.Join(filepath.Dir(r.File), name)
		}
		if err := manifests.add(name, name); err != nil {
			return err
		}
	}
	out := caseReport{Name: c.Name, Line: c.Line, Differences: []expect.Difference{}}
	if m, err := c.Pod.Find(manifests.sets[name]); err != nil {
		out.Differences = append(out.Differences, expect.Difference{Field: "pod", Got: err.Error(), Want: "one"})
	} else if found, notes := c.Compare(ctx, checker, m); len(found) > 0 {
		out.Differences, out.Notes = found, notes
	}
	r.Cases = append(r.Cases, out)
	return nil
}

// failures returns the number of cases with differences.
func (r *expectReport) failures() (n int) {
	for i := range r.Cases {
		if len(r.Cases[i].Differences) > 0 {
			n++
		}
	}
	return n
}

// write writes the differences of each case, in the form of "go test".
func (r *expectReport) write(out *bytes.Buffer) {
	for i := range r.Findings {
		terminal.Notes(out, string(r.Findings[i].Severity), r.Findings[i].String())
	}
	for i := range r.Cases {
		c := &r.Cases[i]
		if len(c.Differences) == 0 {
			continue
		}
		fmt.Fprintf(out, "--- FAIL: %s (%s:%d)\n", terminal.EscapeLine(c.Name), terminal.EscapeLine(r.File), c.Line)
		for _, d := range c.Differences {
			fmt.Fprintf(out, "    %s\n", terminal.EscapeLine(d.String()))
		}
		terminal.Notes(out, "    note", c.Notes...)
	}
	if n := r.failures(); n > 0 {
		fmt.Fprintf(out, "FAIL: %d of %d cases\n", n, len(r.Cases))
	} else {
		fmt.Fprintf(out, "ok: %d cases\n", len(r.Cases))
	}
}

// manifestCache has the manifests of a run, each read once.
type manifestCache struct {
	app      *app
	sets     map[string]*manifest.Set
	findings []manifest.Finding
}

// add reads manifests, unless there are some with this name.
func (c *manifestCache) add(name string, files ...string) error {
	if c.sets[name] != nil {
		return nil
	}
	set, err := c.app.readManifests(files)
	if err != nil {
		return err
	}
	c.sets[name] = &set
	c.findings = append(c.findings, set.Findings...)
	return nil
}
