package main

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"testing"
)

func TestStatusOf(t *testing.T) {
	other := errors.New("x")
	absent := fmt.Errorf("open x: %w", fs.ErrNotExist)
	tests := []struct {
		name   string
		err    error
		want   exitStatus
		silent bool
	}{
		{name: "success"},
		{name: "any error", err: other, want: exitUndetermined},
		{name: "findings", err: findings(), want: exitFindings, silent: true},
		{name: "findings, and what could not be read", err: &exitError{exitFindings, other}, want: exitFindings},
		{name: "usage", err: usage(other), want: exitUsage},
		{name: "usage below other text", err: fmt.Errorf("read: %w", usage(other)), want: exitUsage},
		{name: "one of several", err: errors.Join(other, named(absent)), want: exitUsage},
		{name: "no usage error", err: usage(nil)},
		{name: "a named file that does not exist", err: named(absent), want: exitUsage},
		{name: "a named file that cannot be read", err: named(fs.ErrPermission), want: exitUndetermined},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := statusOf(tt.err); got != tt.want {
				t.Errorf("status %d, want %d", got, tt.want)
			}
			if got := isSilent(tt.err); got != tt.silent {
				t.Errorf("silent is %v, want %v", got, tt.silent)
			}
		})
	}
}

// TestArguments verifies that wrong arguments of any command are an error of the command line.
func TestArguments(t *testing.T) {
	a := newApp()
	a.getenv = func(string) string { return "" }
	root := a.rootCommand()
	for _, c := range append(root.Commands(), root) {
		if c.Name() == "check" {
			continue // it takes any number of manifests
		}
		args := []string{"unexpected"}
		if slices.Contains([]string{"await-daemonset", "calibrate", "owner", "sync", "why"}, c.Name()) {
			args = nil // they need one
		}
		if err := c.Args(c, args); statusOf(err) != exitUsage {
			t.Errorf("%s %q: status %d, %v", c.Name(), args, statusOf(err), err)
		}
	}
}
