package main

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/nri-blkio/nri-blkio/internal/terminal"
)

// print writes the result of a command: as a document, or as the text that write makes of it.
func (a *app) print(o output, result any, write func(*bytes.Buffer)) error {
	var out bytes.Buffer
	if err := o.write(&out, result, write); err != nil {
		return err
	}
	_, err := a.stdout.Write(out.Bytes())
	return err
}

// output is the flag -o.
type output string

const (
	outputTable output = "table"
	outputJSON  output = "json"
	outputYAML  output = "yaml"
	// Only some commands add these.
	outputWide output = "wide" // a table with all columns
	outputName output = "name" // the names of pods
)

func (o output) write(out *bytes.Buffer, result any, write func(*bytes.Buffer)) error {
	switch o {
	case outputJSON:
		return terminal.WriteJSON(out, result)
	case outputYAML:
		return terminal.WriteYAML(out, result)
	}
	write(out)
	return nil
}

// isDocument reports whether programs read the output.
func (o output) isDocument() bool { return o == outputJSON || o == outputYAML }

func (o *output) add(cmd *cobra.Command, more ...output) {
	*o = outputTable
	flag := outputFlag{o, nil}
	for _, format := range append([]output{outputTable, outputJSON, outputYAML}, more...) {
		flag.formats = append(flag.formats, string(format))
	}
	cmd.Flags().VarP(&flag, "output", "o", strings.Join(flag.formats, ", "))
	completes(cmd, "output", flag.formats...)
}

// completes sets the words that a shell completes for a flag. Otherwise it completes names of files.
func completes(cmd *cobra.Command, flag string, words ...string) {
	// The only error is a flag that is not there, or a second call.
	_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
}

// outputFlag is the flag -o of a command, with the formats that it has.
type outputFlag struct {
	*output
	formats []string
}

func (f *outputFlag) String() string { return string(*f.output) }

// Type names the flag's value in help texts.
func (f *outputFlag) Type() string { return "format" }

// Set checks the value as the flags are parsed.
func (f *outputFlag) Set(s string) error {
	if *f.output = output(s); !slices.Contains(f.formats, s) {
		return fmt.Errorf("unknown format %q (write %s)", s, strings.Join(f.formats, ", "))
	}
	return nil
}
