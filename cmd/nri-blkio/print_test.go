package main

import (
	"bytes"
	"testing"
)

func TestOutputFlag(t *testing.T) {
	for value, ok := range map[string]bool{"table": true, "json": true, "yaml": false, "": false} {
		var o output
		if err := o.Set(value); (err == nil) != ok {
			t.Errorf("%q: %v", value, err)
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
		{output: outputJSON, result: []any{1, func() {}}, fails: true},
	} {
		var out bytes.Buffer
		err := (&app{stdout: &out}).print(tt.output, tt.result, text)
		if (err != nil) != tt.fails || out.String() != tt.want {
			t.Errorf("%s of %T: %q, %v", tt.output, tt.result, out.String(), err)
		}
	}
}
