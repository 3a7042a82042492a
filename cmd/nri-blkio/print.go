package main

import (
	"bytes"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/nri-blkio/nri-blkio/internal/terminal"
)

// print writes the result of a command: as JSON, or as the text that write makes of it.
func (a *app) print(o output, result any, write func(*bytes.Buffer)) error {
	var out bytes.Buffer
	if o != outputJSON {
		write(&out)
	} else if err := terminal.WriteJSON(&out, result); err != nil {
		return err
	}
	_, err := a.stdout.Write(out.Bytes())
	return err
}

// output is the flag -o.
type output string

const (
	outputTable output = "table"
	outputWide  output = "wide" // a table with all columns
	outputJSON  output = "json"
)

func (o *output) add(cmd *cobra.Command) {
	*o = outputTable
	cmd.Flags().VarP(o, "output", "o", "table, wide or json")
	completes(cmd, "output", "table", "wide", "json")
}

// completes sets the words that a shell completes for a flag. Otherwise it completes names of files.
func completes(cmd *cobra.Command, flag string, words ...string) {
	// The only error is a flag that is not there, or a second call.
	_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
}

func (o *output) String() string { return string(*o) }

// Type names the flag's value in help texts.
func (o *output) Type() string { return "format" }

// Set checks the value as the flags are parsed.
func (o *output) Set(s string) error {
	if *o = output(s); *o != outputTable && *o != outputWide && *o != outputJSON {
		return fmt.Errorf("unknown format %q (write %s, %s or %s)", s, outputTable, outputWide, outputJSON)
	}
	return nil
}
