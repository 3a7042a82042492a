package main

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/spf13/cobra"
)

// exitStatus is the exit status of the process. 0 is success.
type exitStatus int

const (
	exitFindings     exitStatus = 1 // the command has an answer, and something is wrong
	exitUsage        exitStatus = 2 // the command line, or a file that it names, is wrong
	exitUndetermined exitStatus = 3 // something that the answer needs could not be read or done
)

// exitError is an error that has an exit status. All other errors have exitUndetermined.
type exitError struct {
	status exitStatus
	err    error // nil if the command's output explains the status
}

// Error is called only where err is not nil; see app.run.
func (e *exitError) Error() string {
	if e.err == nil {
		return "findings"
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// findings returns an error with exitFindings, for a command whose output lists the findings.
func findings() error { return &exitError{status: exitFindings} }

// usage returns err with exitUsage. It returns nil for nil.
func usage(err error) error {
	if err == nil {
		return nil
	}
	return &exitError{exitUsage, err}
}

// named returns the error of reading a file that the command line names. If the file does not
// exist, the command line is wrong.
func named(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return usage(err)
	}
	return err
}

func statusOf(err error) exitStatus {
	if err == nil {
		return 0
	}
	if e, ok := errors.AsType[*exitError](err); ok {
		return e.status
	}
	return exitUndetermined
}

// isSilent reports whether the command's output explains an error.
func isSilent(err error) bool {
	e, ok := errors.AsType[*exitError](err)
	return ok && e.err == nil
}

// usageArgs returns a check of arguments whose errors have exitUsage.
func usageArgs(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error { return usage(check(cmd, args)) }
}

// checkFlags runs before each command. It finds missing flags and flags that exclude one another.
func checkFlags(cmd *cobra.Command, _ []string) error {
	if err := cmd.ValidateRequiredFlags(); err != nil {
		return usage(err)
	}
	return usage(cmd.ValidateFlagGroups())
}

// exitHelp is part of the root command's help.
const exitHelp = `

Exit status:
  0  success
  1  findings: a manifest has errors, or a requested limit is not in force
  2  the command line is wrong, or a file that it names does not exist or is invalid
  3  undetermined: the command could not read or do all that it needs
If 1 and 3 apply, the status is 1.`

// knownCommand rejects an unknown command, and names a similar one.
func knownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	hint := cmd.CommandPath() + " --help lists them"
	cmd.SuggestionsMinimumDistance = 2
	if similar := cmd.SuggestionsFor(args[0]); len(similar) > 0 {
		hint = fmt.Sprintf("did you mean %q?", similar[0])
	}
	return fmt.Errorf("unknown command %q (%s)", args[0], hint)
}

// operands returns an error with a hint unless there are as many arguments.
func operands(least, most int, hint string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < least || len(args) > most {
			return fmt.Errorf("%s: %d arguments (%s)", cmd.Name(), len(args), hint)
		}
		return nil
	}
}
