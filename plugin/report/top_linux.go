package report

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/nri-blkio/nri-blkio/internal/terminal"
	"github.com/nri-blkio/nri-blkio/plugin/why"
)

// WriteTop writes a list of containers for a terminal of a width; 0: any.
func WriteTop(out *bytes.Buffer, top *why.Top, width int) {
	for _, text := range top.Unknown {
		text = terminal.EscapeLine("unknown: " + text)
		if width > 0 {
			text = terminal.Shorten(text, width)
		}
		fmt.Fprintln(out, text)
	}
	if len(top.Rows) == 0 {
		fmt.Fprintln(out, "no such container does I/O, has a limit, or waits")
		return
	}
	t := terminal.NewTable(out, "POD", "CONTAINER", "DISK", "READ", "WRITE", "OPS", "LIMIT", "%HELD", "%OTHER", "%PSI")
	for i := range top.Rows {
		r := &top.Rows[i]
		limit := ""
		if r.Limit != nil {
			limit = fmt.Sprintf("%.0f%% %s", 100*r.Limit.Used, r.Limit.Key)
			if r.Limit.Burst {
				limit += ".burst"
			}
		}
		pod, container := r.Names()
		t.Row(pod, containerOrPod(container), r.Disk.Disk, rate(r.ReadBytes), rate(r.WriteBytes), number(r.ReadOps+r.WriteOps), limit,
			percentText(r.Held), percentText(r.Others), percentText(r.Waiting))
	}
	t.Fit(width, "CONTAINER", "POD")
	t.Flush()
}

func number(n float64) string { return fmt.Sprintf("%.0f", n) }

func percentText(part *float64) string {
	if part == nil {
		return ""
	}
	return number(100 * *part)
}

// rate returns bytes with at most four digits, "1010K" or "9.3M".
func rate(bytes float64) string {
	text := terminal.Bytes(uint64(bytes))
	if whole, rest, ok := strings.Cut(text, "."); ok && len(whole) > 1 {
		return whole + rest[1:]
	}
	return text
}

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
