//go:build !linux

package main

import (
	"context"
	"errors"
	"io"

	"github.com/spf13/cobra"

	"github.com/nri-blkio/nri-blkio/plugin/check"
	"github.com/nri-blkio/nri-blkio/policy"
)

// app has the streams, the environment and the options that the commands share.
type app struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	getenv         func(string) string
	opts           options
}

// options has the flags that more than one command has.
type options struct{ policy, mode string }

func newApp() *app { return &app{} }

// preinstalled returns the arguments: no runtime starts plugins on this system.
func (*app) preinstalled(args []string) []string { return args }

func (*app) nodeCommands() []*cobra.Command { return nil }

func (*app) addNodeFlags(*cobra.Command) {}

func (*options) addCheckFlags(*cobra.Command) {}

// runningPolicy returns the built-in policy: no plugin runs on this system.
func (*app) runningPolicy() (*policy.Policy, check.PolicySource) {
	return policy.Default(), check.PolicySource{Name: check.BuiltIn}
}

// readNode is an error: there are no pods on this system.
func (*app) readNode(context.Context, *policy.Policy) (check.Node, error) {
	return check.Node{}, usage(errors.New("check: no Linux node (use --offline)"))
}
