package report

import (
	"bytes"
	"fmt"

	"github.com/nri-blkio/nri-blkio/internal/terminal"
	"github.com/nri-blkio/nri-blkio/plugin/expect"
)

// WriteExpect writes the findings in manifests, and the differences of each case, in the form of "go test".
func WriteExpect(out *bytes.Buffer, r *expect.Report) {
	writeFindings(out, r.Findings)
	for i := range r.Cases {
		c := &r.Cases[i]
		if len(c.Differences) == 0 {
			continue
		}
		fmt.Fprintf(out, "--- FAIL: %s (%s:%d)\n", terminal.EscapeLine(c.Name), terminal.EscapeLine(r.File), c.Line)
		for _, d := range c.Differences {
			fmt.Fprintf(out, "    %s\n", terminal.EscapeLine(d.String()))
		}
		terminal.Notes(out, "    note", c.Notes...)
	}
	if n := r.Failures(); n > 0 {
		fmt.Fprintf(out, "FAIL: %d of %d cases\n", n, len(r.Cases))
	} else {
		fmt.Fprintf(out, "ok: %d cases\n", len(r.Cases))
	}
}
