package main

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestProgress verifies that a silence has a line every ten seconds, which names the last step, and that what the
// demo prints ends a silence.
func TestProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var stdout, stderr strings.Builder
		p := &progress{stdout: &stdout, stderr: &stderr}
		stop := p.start(10 * time.Second)
		time.Sleep(500 * time.Millisecond) // between two looks
		fmt.Fprintln(p.steps(), "node: building debian")
		time.Sleep(25 * time.Second)
		fmt.Fprintln(p.text(), "1. A pod reads:")
		time.Sleep(8 * time.Second)
		fmt.Fprintln(p.text(), "   much")
		time.Sleep(8 * time.Second)
		fmt.Fprint(p.steps(), "one\ntwo\n")
		time.Sleep(12 * time.Second)
		stop()
		const want = "node: building debian\n" +
			"demo: 11s: still at: node: building debian\ndemo: 21s: still at: node: building debian\none\ntwo\ndemo: 52s: still at: two\n"
		if stdout.String() != "1. A pod reads:\n   much\n" || stderr.String() != want {
			t.Errorf("printed %q and %q, want %q", stdout.String(), stderr.String(), want)
		}
	})
}
