package main

import (
	"bytes"
	"cmp"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/nri-blkio/nri-blkio/internal/terminal"
	"github.com/nri-blkio/nri-blkio/plugin/health"
	"github.com/nri-blkio/nri-blkio/plugin/inspect"
	"github.com/nri-blkio/nri-blkio/plugin/iocost"
	"github.com/nri-blkio/nri-blkio/plugin/repair"
)

// writeStatus writes the sections of status.
func writeStatus(out *bytes.Buffer, s *inspect.Status) {
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
		t.Row(podName(v.Namespace, v.Pod), v.Container, v.Source.Target, v.Disk, v.Key, v.Asked, v.InForce, v.Source.String(), withReason(v.State, v.Error))
	}
	t.Flush()
	for _, n := range s.Notes {
		terminal.Notes(out, n.Kind, containerName(n.Namespace, n.Pod, n.Container)+": "+n.Text)
	}
	for _, d := range s.SharedDisks {
		terminal.Notes(out, "note", d.String())
	}
}

// writeWeights writes the effect of weights, and the disks that io.cost is enabled on or should be.
func writeWeights(out *bytes.Buffer, w *health.Weights) {
	if w == nil {
		return
	}
	if len(w.Shares) > 0 {
		fmt.Fprintln(out, "\nWeights:")
		t := terminal.NewTable(out, "POD", "CONTAINER", "DISK", "WEIGHT", "SHARE NOW", "STATE")
		for _, s := range w.Shares {
			t.Row(podName(s.Namespace, s.Pod), s.Container, cmp.Or(s.Disk, "none"), fmt.Sprint(s.Weight), shareText(s), withReason(effectText(s), s.Reason))
		}
		t.Flush()
	}
	if w.SharesLeftOut > 0 {
		terminal.Notes(out, "note", fmt.Sprintf("%d weights on this node are left out, because the report is bounded", w.SharesLeftOut))
	}
	for _, skipped := range w.Skipped {
		terminal.Notes(out, "warning", skipped)
	}
	t := terminal.NewTable(out, "IO.COST ON", "MODEL FROM", "QOS FROM", "VRATE", "STATE")
	rows := 0
	for _, d := range w.Disks {
		if !d.Enabled && d.Error == "" {
			continue
		}
		rows++
		t.Row(d.Disk, d.Model, d.QOS, fmt.Sprintf("%.0f%%", d.Vrate), costText(d))
	}
	if rows > 0 {
		fmt.Fprintln(out)
		t.Flush()
	}
}

func shareText(s health.Share) string {
	if s.Reason != "" {
		return "none"
	}
	return fmt.Sprintf("%.1f%%", 100*s.Share)
}

func effectText(s health.Share) string {
	if s.Reason != "" {
		return "no effect"
	}
	return "ok"
}

func costText(d health.CostDisk) string {
	switch {
	case d.Error != "":
		return "failed: " + d.Error
	case d.Kept != "":
		return "kept: " + d.Kept
	case d.Model == string(iocost.FromKernel):
		return "ok; " + inspect.GuessedModel
	}
	return "ok"
}

func writeDead(out *bytes.Buffer, s *inspect.Status) {
	if len(s.Dead) > 0 {
		fmt.Fprintln(out, "\nEnded containers with data left to write:")
		t := terminal.NewTable(out, "POD", "CONTAINER", "DISK", "DRAINS AT", "LEFT", "SINCE")
		for i := range s.Dead {
			d := &s.Dead[i]
			t.Row(podName(d.Namespace, d.Pod), d.Container, d.Disk, drainText(d), leftText(d), d.Since)
		}
		t.Flush()
	}
	if s.DeadNote != "" {
		terminal.Notes(out, "note", s.DeadNote)
	}
}

func drainText(d *inspect.DeadRow) string {
	if d.Measured == 0 {
		return d.DrainsAt
	}
	return d.DrainsAt + ", measured " + terminal.Bytes(d.Measured) + "/s"
}

func leftText(d *inspect.DeadRow) string {
	if d.Left == 0 {
		return "unknown"
	}
	return terminal.Bytes(d.Left)
}

func writeOrphanTable(out *bytes.Buffer, s *inspect.Status) {
	if len(s.Orphans) > 0 {
		fmt.Fprintln(out, "\nOrphaned volumes, still mounted without a process of their pod (\"nri-blkio devices\" lists the processes that hold them):")
		t := terminal.NewTable(out, "POD", "VOLUME", "DISK", "MOUNTPOINT", "WHY")
		for i := range s.Orphans {
			o := &s.Orphans[i]
			t.Row(cmp.Or(podName(o.Namespace, o.Pod), o.UID), o.Volume, strings.Join(o.Disks, ","), o.Mountpoint, o.Reason)
		}
		t.Flush()
	}
	if s.OrphansNote != "" {
		terminal.Notes(out, "note", s.OrphansNote)
	}
}

// writeFiles writes the report of the writeback part, nil if it does not run.
func writeFiles(out *bytes.Buffer, r *repair.Report) {
	if r == nil {
		terminal.Notes(out, "note", "writes to files are not observed: the writeback part does not run")
		return
	}
	if r.Mode != repair.ModeUnavailable {
		fmt.Fprintf(out, "\nFiles are watched on: %s\n", cmp.Or(watchedText(r.Filesystems), "no filesystem"))
	}
	switch {
	case r.Mode == repair.ModeUnavailable, r.Mode == repair.ModeGated:
		terminal.Notes(out, "note", "files are not moved to their writers: "+r.Reason)
	case r.Mode == repair.ModeObserve:
		terminal.Notes(out, "note", "files are not moved to their writers (mode observe, or writeback.repair is off)")
	case r.Reason != "":
		terminal.Notes(out, "note", r.Reason)
	}
	if r.Mode == repair.ModeUnavailable || len(r.Files) == 0 {
		return
	}
	t := terminal.NewTable(out, "FILE", "OWNER", "WRITERS", "MISPLACED", "STATE", "SINCE")
	for i := range r.Files {
		f := &r.Files[i]
		t.Row(fileName(f), f.Owner.String(), writersText(f.Writers), terminal.Bytes(f.Misplaced), withReason(string(f.State), f.Failure), timeText(f.Since))
	}
	if r.More > 0 {
		t.Row(fmt.Sprintf("and %d more", r.More))
	}
	t.Flush()
}

func watchedText(filesystems []repair.Filesystem) string {
	var out []string
	for _, fs := range filesystems {
		name := terminal.Escape(fs.Mountpoint)
		if fs.Hangs {
			name += " (does not answer)"
		}
		out = append(out, name)
	}
	return strings.Join(out, ", ")
}

// fileName returns the path, or the inode's number on its filesystem.
func fileName(f *repair.File) string {
	if f.Path != "" {
		return f.Path
	}
	name := fmt.Sprintf("%s inode %d", filepath.Clean(f.Mountpoint), f.Inode)
	if f.Subvolume != 0 {
		name += fmt.Sprintf(" of subvolume %d", f.Subvolume)
	}
	return name
}

func writersText(writers []repair.Writer) string {
	var out []string
	for _, w := range writers {
		out = append(out, fmt.Sprintf("%s %.0f%%", w.NamedCgroup, 100*w.Share))
	}
	return strings.Join(out, ", ")
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
