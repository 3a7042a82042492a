package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

func TestOutputFlag(t *testing.T) {
	for value, ok := range map[string]bool{"table": true, "wide": true, "json": true, "yaml": true, "name": false, "xml": false, "": false} {
		var o output
		cmd := &cobra.Command{}
		o.add(cmd, outputWide)
		err := cmd.Flags().Set("output", value)
		if (err == nil) != ok || ok && string(o) != value {
			t.Errorf("%q: %q, %v", value, o, err)
		}
		if err != nil && !strings.Contains(err.Error(), "(write table, json, yaml, wide)") {
			t.Error(err)
		}
	}
}

// TestPrint verifies that a result is printed as a whole or not at all.
func TestPrint(t *testing.T) {
	text := func(out *bytes.Buffer) { out.WriteString("text\n") }
	for _, tt := range []struct {
		output output
		result any
		want   string
		fails  bool
	}{
		{output: outputTable, result: 1, want: "text\n"},
		{output: outputJSON, result: map[string]string{"k": "\x1b"}, want: "{\n  \"k\": \"\\u001b\"\n}\n"},
		{output: outputYAML, result: map[string]string{"k": "\x1b"}, want: "k: \"\\e\"\n"},
		{output: outputYAML, result: []any{1, func() {}}, fails: true},
		{output: outputJSON, result: []any{1, func() {}}, fails: true},
	} {
		var out bytes.Buffer
		err := (&app{stdout: &out}).print(tt.output, tt.result, text)
		if (err != nil) != tt.fails || out.String() != tt.want {
			t.Errorf("%s of %T: %q, %v", tt.output, tt.result, out.String(), err)
		}
	}
}
