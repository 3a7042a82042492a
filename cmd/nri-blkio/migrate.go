package main

import (
	"bytes"
	"fmt"

	"github.com/nri-blkio/nri-blkio/internal/terminal"
	"github.com/nri-blkio/nri-blkio/plugin/migrate"
)

// migrateReport is the output of check --migrate.
type migrateReport struct {
	Policy      string               `json:"policy"` // the text of the node policy
	Differences []migrate.Difference `json:"differences"`
}

// migrate converts a file of blockio classes to a node policy.
func (a *app) migrate(o *checkOptions) error {
	data, err := readSmall(o.migrate)
	if err != nil {
		return named(fmt.Errorf("read blockio classes: %w", err))
	}
	report := migrateReport{Differences: []migrate.Difference{}}
	text, differences, err := migrate.Convert(data)
	if err != nil {
		return usage(fmt.Errorf("read %s: %w", o.migrate, err))
	}
	report.Policy, report.Differences = text, append(report.Differences, differences...)
	if err := a.print(o.output, report, func(out *bytes.Buffer) { out.WriteString(report.Policy) }); err != nil {
		return err
	}
	if len(differences) == 0 {
		return nil
	}
	if !o.output.isDocument() {
		for _, d := range differences {
			terminal.Notes(a.stderr, "difference", d.String())
		}
	}
	return findings()
}
