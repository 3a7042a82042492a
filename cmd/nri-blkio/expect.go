package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/nri-blkio/nri-blkio/plugin/check"
	"github.com/nri-blkio/nri-blkio/plugin/expect"
	"github.com/nri-blkio/nri-blkio/plugin/report"
)

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
	a.warnOf(p)
	suite := expect.Suite{
		Checker: &check.Checker{Policy: p, Handler: o.handler}, Policy: a.opts.policy,
		File: o.expect, Cases: cases, Read: a.readManifests,
	}
	r, err := suite.Run(ctx, o.files...)
	if err != nil {
		return err
	}
	if err := a.print(o.output, r, func(out *bytes.Buffer) { report.WriteExpect(out, r) }); err != nil {
		return err
	}
	if r.HasErrors() {
		return findings()
	}
	return nil
}
