package report

import (
	"bytes"
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/nri-blkio/nri-blkio/internal/terminal"
	"github.com/nri-blkio/nri-blkio/plugin/health"
	"github.com/nri-blkio/nri-blkio/plugin/inspect"
	"github.com/nri-blkio/nri-blkio/plugin/iocost"
	"github.com/nri-blkio/nri-blkio/plugin/repair"
	"github.com/nri-blkio/nri-blkio/plugin/why"
	"github.com/nri-blkio/nri-blkio/policy"
)

// WriteLimits writes only the rows of values, without a header, for programs.
func WriteLimits(out *bytes.Buffer, s *inspect.Status, isWide bool) {
	t := valuesTable(out, s.Values, isWide)
	t.NoHeader()
	t.Flush()
}

// WriteStatus writes the sections of status. A wide table has all columns and rows. The tables of one pod do not repeat its name.
func WriteStatus(out *bytes.Buffer, s *inspect.Status, isWide, isOnePod bool) {
	writeParts(out, s.Parts)
	fmt.Fprintln(out)
	writeValues(out, s, isWide, isOnePod)
	writeWeights(out, s.Weights, isOnePod && !isWide)
	writeBudgets(out, s.Budgets)
	writeDead(out, s, isOnePod && !isWide)
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

func writeValues(out *bytes.Buffer, s *inspect.Status, isWide, isOnePod bool) {
	if !s.Enforces() {
		fmt.Fprintln(out, "nothing enforces limits for new containers on this node: the limits part is not connected to a runtime")
	}
	switch {
	case len(s.Values) == 0 && len(s.Notes) == 0:
		fmt.Fprintln(out, "no limits requested")
	case len(s.Values) == 0: // what was requested is left out, as the notes say
		fmt.Fprintln(out, "no limits in force")
	default:
		t := valuesTable(out, s.Values, isWide)
		if isOnePod && !isWide {
			t.Omit("POD")
			if !slices.ContainsFunc(s.Values, func(v inspect.Value) bool { return isShown(&v) && v.Container == "" }) {
				t.Omit("CONTAINER")
			}
		}
		t.Flush()
	}
	for _, n := range s.Notes {
		terminal.Notes(out, n.Kind, ContainerName(n.Namespace, n.Pod, n.Container)+": "+n.Text)
	}
}

func valuesTable(out *bytes.Buffer, values []inspect.Value, isWide bool) *terminal.Table {
	if isWide {
		t := terminal.NewTable(out, "POD", "CONTAINER", "TARGET", "DISK", "KEY", "REQUESTED", "IN FORCE", "USED", "FROM", "STATE")
		for i := range values {
			v := &values[i]
			t.Row(PodName(v.Namespace, v.Pod), v.Container, v.Source.Target, v.Disk, v.Key, v.Asked, v.InForce, usedText(v), v.Source.String(), withReason(v.State, v.Error)+burstText(v))
		}
		return t
	}
	t := terminal.NewTable(out, "POD", "CONTAINER", "TARGET", "DISK", "LIMIT", "USED", "STATE")
	for i := range values {
		v := &values[i]
		if !isShown(v) {
			continue
		}
		state := v.State
		if state == inspect.ValueDrift {
			state += ": the kernel has " + valueText(v.Key, v.InForce)
		}
		t.Row(PodName(v.Namespace, v.Pod), containerOrPod(v.Container), v.Source.Target, v.Disk, valueText(v.Key, v.Asked), usedText(v), withReason(state, v.Error)+burstText(v))
	}
	return t
}

// isShown reports whether a value has a row in the narrow table. A backstop, which limits no more than the containers' limits do, has one
// only if it is not in force.
func isShown(v *inspect.Value) bool {
	return v.Source.Kind != policy.FromBackstop || v.State != inspect.ValueOK
}

// burstText describes the burst of a value; "" without one.
func burstText(v *inspect.Value) string {
	if v.Burst == nil {
		return ""
	}
	state := "burst to "
	if v.Burst.Raised {
		state = "raised to "
	}
	return fmt.Sprintf(", %s%s, credits %.0f%%", state, v.Burst.Burst, 100*v.Burst.Credits)
}

func usedText(v *inspect.Value) string {
	if v.Used == nil {
		return ""
	}
	return percentText(v.Used) + "%"
}

// valueText returns a value in the words of annotations; "" without one.
func valueText(key, amount string) string {
	if key == "weight" {
		return key + " " + amount
	}
	return strings.Trim(key+"="+amount, "=")
}

func writeDead(out *bytes.Buffer, s *inspect.Status, isOnePod bool) {
	if len(s.Dead) == 0 {
		return
	}
	fmt.Fprintln(out, "\nEnded containers with data left to write:")
	t := terminal.NewTable(out, "POD", "CONTAINER", "DISK", "DRAINS AT", "LEFT", "SINCE")
	for i := range s.Dead {
		d := &s.Dead[i]
		t.Row(PodName(d.Namespace, d.Pod), d.Container, d.Disk, d.DrainsAt, terminal.Bytes(d.Left), d.Since)
	}
	if isOnePod {
		t.Omit("POD")
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

func writeBudgets(out *bytes.Buffer, b *health.Budgets) {
	if b == nil || len(b.Sums) == 0 {
		return
	}
	fmt.Fprintln(out, "\nBudgets:")
	t := terminal.NewTable(out, "NAMESPACE", "DISK", "KEY", "GRANTED", "BUDGET", "PODS", "STATE")
	for i := range b.Sums {
		s := &b.Sums[i]
		state := "ok"
		switch {
		case s.Over:
			state = "over the budget"
		case s.Reason != "":
			state = "not kept: " + s.Reason
		case s.Factor != 0 && s.Factor != 1:
			state = "scaled to " + share(s.Factor)
		}
		if s.Undecided > 0 {
			state += ", without " + inspect.Count(s.Undecided, "pod") + " not decided yet"
		}
		t.Row(cmp.Or(s.Namespace, "class/"+s.Class), s.Disk, s.Key, s.Granted, s.Budget, fmt.Sprint(s.Pods), state)
	}
	t.Flush()
	if b.LeftOut > 0 {
		terminal.Notes(out, "note", fmt.Sprintf("%d budgets are left out, because the report is bounded", b.LeftOut))
	}
}

func writeWeights(out *bytes.Buffer, w *health.Weights, isOnePod bool) {
	if w == nil {
		return
	}
	if len(w.Shares) > 0 {
		fmt.Fprintln(out, "\nWeights:")
		t := terminal.NewTable(out, "POD", "CONTAINER", "DISK", "WEIGHT", "SHARE NOW", "STATE")
		for _, s := range w.Shares {
			t.Row(PodName(s.Namespace, s.Pod), s.Container, cmp.Or(s.Disk, "none"), fmt.Sprint(s.Weight), shareText(s), withReason(effectText(s), s.Reason))
		}
		if isOnePod {
			t.Omit("POD")
		}
		t.Flush()
	}
	if w.SharesLeftOut > 0 {
		terminal.Notes(out, "note", fmt.Sprintf("%d weights on this node are left out, because the report is bounded", w.SharesLeftOut))
	}
	for _, skipped := range w.Skipped {
		terminal.Notes(out, "warning", skipped)
	}
	t := terminal.NewTable(out, "WEIGHTS ON", "MODEL FROM", "QOS FROM", "VRATE", "STATE")
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
	if w.Promised != "" {
		terminal.Notes(out, "note", w.Promised)
	}
}

func shareText(s health.Share) string {
	if s.Reason != "" {
		return "none"
	}
	return share(s.Share)
}

func effectText(s health.Share) string {
	if s.Reason != "" {
		return "no effect"
	}
	if s.Scaled != 0 {
		return "ok, scaled to " + health.WeightText(s.Scaled) + " by the budget of namespace " + s.Namespace
	}
	return "ok"
}

func costText(d health.CostDisk) string {
	switch {
	case d.Error != "":
		return "failed: " + d.Error
	case d.By == iocost.BFQ:
		return "ok; by the scheduler bfq, which divides reads better than writes"
	case d.Kept != "":
		return "kept: " + d.Kept
	case d.Model == string(iocost.FromKernel):
		return "ok; " + inspect.GuessedModel
	case d.Follow != nil:
		return withReason("ok; model "+d.Follow.State, d.Follow.Reason)
	}
	return "ok"
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
	switch r.Mode {
	case repair.ModeUnavailable, repair.ModeGated:
		terminal.Notes(out, "note", "files are not moved to their writers: "+r.Reason)
	case repair.ModeObserve:
		terminal.Notes(out, "note", "files are not moved to their writers (mode observe, or writeback.repair is off)")
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

// WriteOwners writes a row for each file.
func WriteOwners(out *bytes.Buffer, rows []why.FileOwner) {
	if len(rows) == 0 {
		return
	}
	t := terminal.NewTable(out, "FILE", "OWNER", "CGROUP", "FOREIGN")
	for i := range rows {
		t.Row(rows[i].Path, ownerText(&rows[i]), rows[i].Cgroup, fmt.Sprint(rows[i].Foreign))
	}
	t.Flush()
}

func ownerText(r *why.FileOwner) string {
	name := ContainerName(r.Namespace, r.Pod, r.Container)
	switch {
	case r.State == why.OwnerLive:
		return name
	case name == "":
		return r.State
	}
	return name + " (" + r.State + ")"
}
