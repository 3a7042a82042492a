package report

import (
	"bytes"
	"fmt"
	"time"

	"github.com/nri-blkio/nri-blkio/internal/terminal"
	"github.com/nri-blkio/nri-blkio/plugin/inspect"
)

// WriteStatus writes the sections of status.
func WriteStatus(out *bytes.Buffer, s *inspect.Status) {
	writeParts(out, s.Parts)
	fmt.Fprintln(out)
	writeValues(out, s)
	writeWeights(out, s.Weights)
	writeBudgets(out, s.Budgets)
	writeDead(out, s)
	writeOrphanTable(out, s)
	if len(s.Values) > 0 || s.Files != nil {
		writeFiles(out, s.Files)
	}
}

func writeParts(out *bytes.Buffer, parts []inspect.Part) {
	t := terminal.NewTable(out, "PART", "STATE", "SINCE", "DETAIL")
	for _, p := range parts {
		t.Row(p.Part, p.State, timeText(p.Since), p.Detail)
	}
	t.Flush()
	for _, p := range parts {
		if p.PolicyRejected != "" {
			terminal.Notes(out, "warning", p.Part+": the new policy is rejected, and the former one stays in force: "+p.PolicyRejected)
		}
	}
}

func writeValues(out *bytes.Buffer, s *inspect.Status) {
	if !s.Enforces() {
		fmt.Fprintln(out, "nothing enforces limits for new containers on this node: the limits part is not connected to a runtime")
	}
	if len(s.Values) == 0 {
		fmt.Fprintln(out, "no limits requested")
		return
	}
	t := terminal.NewTable(out, "POD", "CONTAINER", "TARGET", "DISK", "KEY", "REQUESTED", "IN FORCE", "FROM", "STATE")
	for _, v := range s.Values {
		t.Row(PodName(v.Namespace, v.Pod), v.Container, v.Source.Target, v.Disk, v.Key, v.Asked, v.InForce, v.Source.String(), withReason(v.State, v.Error))
	}
	t.Flush()
	for _, n := range s.Notes {
		terminal.Notes(out, n.Kind, ContainerName(n.Namespace, n.Pod, n.Container)+": "+n.Text)
	}
	for _, d := range s.SharedDisks {
		terminal.Notes(out, "note", d.String())
	}
}

func writeDead(out *bytes.Buffer, s *inspect.Status) {
	if len(s.Dead) == 0 {
		return
	}
	fmt.Fprintln(out, "\nEnded containers with data left to write:")
	t := terminal.NewTable(out, "POD", "CONTAINER", "DISK", "DRAINS AT", "LEFT", "SINCE")
	for i := range s.Dead {
		d := &s.Dead[i]
		t.Row(PodName(d.Namespace, d.Pod), d.Container, d.Disk, d.DrainsAt, terminal.Bytes(d.Left), d.Since)
	}
	t.Flush()
}

func withReason(state, reason string) string {
	if reason == "" {
		return state
	}
	return state + ": " + reason
}

func timeText(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}
