package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestJSONLog verifies that a log that a machine reads has durations and errors as text.
func TestJSONLog(t *testing.T) {
	var out bytes.Buffer
	a := app{stderr: &out, opts: options{logLevel: "info", logFormat: "json"}}
	log, err := a.logger()
	if err != nil {
		t.Fatal(err)
	}
	entry := log.WithError(errors.Join(errors.New(`write "<8:0>"`), errors.New("and more"))).
		WithField("deadline", 500*time.Millisecond)
	for range 2 { // an entry can be used again
		out.Reset()
		entry.Info("Registered")
		var got map[string]any
		if err := json.Unmarshal(out.Bytes(), &got); err != nil {
			t.Fatal(err)
		}
		delete(got, "time")
		want := map[string]any{
			"level": "info", "msg": "Registered", "deadline": "500ms", "error": "write \"<8:0>\"\nand more",
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("-want +got:\n%s", d)
		}
	}
	if !bytes.Contains(out.Bytes(), []byte("<8:0>")) {
		t.Errorf("escaped as for a web page: %s", out.Bytes())
	}
	if d := entry.Data["deadline"]; d != 500*time.Millisecond {
		t.Errorf("the entry was changed: deadline is %v", d)
	}
}
