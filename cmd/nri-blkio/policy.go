package main

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/nri-blkio/nri-blkio/internal/terminal"
	"github.com/nri-blkio/nri-blkio/policy"
	"github.com/nri-blkio/nri-blkio/policy/strict"
)

func (o *options) addPolicyFlag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.policy, "policy", "", "the node policy file (default: the built-in policy;\nfor check and devices: that of the running plugin)")
}

// loadPolicy returns the policy of --policy, or the built-in policy.
func (o *options) loadPolicy() (*policy.Policy, error) {
	if o.policy == "" {
		return o.withMode(policy.Default())
	}
	data, err := readSmall(o.policy)
	if err != nil {
		return nil, named(fmt.Errorf("read policy: %w", err))
	}
	p, err := o.parsePolicy(data)
	if err != nil {
		return nil, usage(fmt.Errorf("read %s: %w", o.policy, err))
	}
	return p, nil
}

func (a *app) warnOf(p *policy.Policy) { terminal.Notes(a.stderr, "warning", p.Warnings()...) }

// readSmall reads a file for package strict, which refuses a larger one.
func readSmall(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, strict.MaxSize+1))
}

func (o *options) parsePolicy(data []byte) (*policy.Policy, error) {
	p, err := policy.ParseFile(data)
	if err != nil {
		return nil, err
	}
	return o.withMode(p)
}

func (o *options) withMode(p *policy.Policy) (*policy.Policy, error) {
	switch m := policy.Mode(o.mode); m {
	case "":
	case policy.ModeEnforce, policy.ModeObserve:
		return p.WithMode(m), nil
	default:
		return nil, usage(fmt.Errorf("--mode: unknown value %q (write %s or %s)", o.mode, policy.ModeEnforce, policy.ModeObserve))
	}
	return p, nil
}
