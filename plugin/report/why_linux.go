package report

import (
	"bytes"
	"fmt"

	"github.com/nri-blkio/nri-blkio/internal/terminal"
	"github.com/nri-blkio/nri-blkio/plugin/why"
)

// WriteWhy writes an answer: the line, the parts of the waiting time, and the disks.
func WriteWhy(out *bytes.Buffer, a *why.Answer) {
	fmt.Fprintf(out, "%s\n", terminal.EscapeLine(a.Text))
	if len(a.Causes) > 0 {
		fmt.Fprintln(out)
		t := terminal.NewTable(out, "PART", "CAUSE", "DISK", "WHAT")
		for i := range a.Causes {
			c := &a.Causes[i]
			t.Row(fmt.Sprintf("%.0f %%", 100*c.Part), c.Cause, c.Disk, c.Text)
		}
		t.Flush()
		seen := map[string]bool{}
		for i := range a.Causes {
			if c := &a.Causes[i]; c.Do != "" && !seen[c.Do] {
				seen[c.Do] = true
				terminal.Notes(out, "do ("+c.Cause+")", c.Do)
			}
		}
	}
	if len(a.Disks) > 0 {
		fmt.Fprintln(out)
		t := terminal.NewTable(out, "DISK", "READ/S", "WRITE/S", "READS/S", "WRITES/S", "LIMIT", "USED")
		for i := range a.Disks {
			d := &a.Disks[i]
			limit, used := "", ""
			if d.Limit != nil {
				limit, used = d.Limit.Key+"="+d.Limit.Value, fmt.Sprintf("%.0f %%", 100*d.Limit.Used)
			}
			t.Row(d.Disk, terminal.Bytes(uint64(d.ReadBytes)), terminal.Bytes(uint64(d.WriteBytes)),
				fmt.Sprintf("%.0f", d.ReadOps), fmt.Sprintf("%.0f", d.WriteOps), limit, used)
		}
		t.Flush()
	}
	terminal.Notes(out, "unknown", a.Unknown...)
}
