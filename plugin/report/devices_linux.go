package report

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/nri-blkio/nri-blkio/blkio/storage"
	"github.com/nri-blkio/nri-blkio/internal/terminal"
	"github.com/nri-blkio/nri-blkio/plugin/inspect"
)

const (
	// maxRows is the number of children of one node in the table.
	maxRows = 20
	// maxLabel keeps the table on a screen with any name of a volume. A claim's, "pvc-" and a
	// UUID, fits.
	maxLabel = 40
	// maxPath is the longest mountpoint that is shown in full: those of CSI drivers contain hashes.
	maxPath = 64
)

// WriteDevices writes the sections of devices. It writes all children of a node if all is true, otherwise the first 20.
func WriteDevices(out *bytes.Buffer, r *inspect.DevicesReport, all bool) {
	t := treeTable{
		Table: terminal.NewTable(out, "NAME", "DEV", "SIZE", "MAX", "WEIGHT", "BUFFERED", "WHAT"), all: all,
	}
	for _, n := range r.Devices {
		t.node(n, "", "")
	}
	t.Flush()
	if len(t.reasons) > 0 {
		fmt.Fprintln(out)
	}
	for i, reason := range t.reasons {
		fmt.Fprintf(out, "[%d] %s\n", i+1, terminal.EscapeLine(reason))
	}
	writeCosts(out, r.Costs, r.Policy, r.Promised)
	writeOrphans(out, r.Orphans)
}

// treeTable is a table whose first column is a tree. Reasons are numbered lines below it.
type treeTable struct {
	*terminal.Table
	all     bool
	reasons []string // in the order of their numbers
}

// node adds a row for a node, and rows for its children. first is printed before its name, and
// rest before the names of its children.
func (t *treeTable) node(n *inspect.Node, first, rest string) {
	label := terminal.Shorten(terminal.Escape(n.Name), maxLabel)
	if n.Again {
		label += " ^"
	}
	dev := n.Dev
	if n.Kind == inspect.KindFilesystem {
		dev = "" // the number of its device, or of none
	}
	size := ""
	if n.Size > 0 {
		size = terminal.Bytes(n.Size)
	}
	t.Row(first+label, blank(dev), blank(size),
		t.support("max", n.Max), t.support("weight", n.Weight), t.support("buffered", n.Buffered), blank(nodeText(n)))
	shown := firstOf(n.Children, t.all)
	for i, c := range shown {
		if i == len(n.Children)-1 {
			t.node(c, rest+"└─", rest+"  ")
		} else {
			t.node(c, rest+"├─", rest+"│ ")
		}
	}
	if more := len(n.Children) - len(shown); more > 0 {
		const empty = terminal.Blank
		t.Row(fmt.Sprintf("%s└─and %d more", rest, more), empty, empty, empty, empty, empty, "--all draws them")
	}
}

// support is a cell: "yes" or "no", with the number of the reason.
func (t *treeTable) support(what string, s *inspect.Support) string {
	if s == nil {
		return terminal.Blank
	}
	if s.Reason == "" {
		return s.OK.String()
	}
	reason := what + ": " + s.Reason
	i := slices.Index(t.reasons, reason)
	if i < 0 {
		i = len(t.reasons)
		t.reasons = append(t.reasons, reason)
	}
	return fmt.Sprintf("%s [%d]", s.OK, i+1)
}

// nodeText describes a node in the last column.
func nodeText(n *inspect.Node) string {
	if n.Again {
		return "see above"
	}
	var parts []string
	switch n.Kind {
	case inspect.KindFilesystem:
		parts = filesystemText(n)
	case inspect.KindSwap:
		parts = []string{"swap, " + terminal.Bytes(n.Used) + " used"}
	case inspect.KindVolume, inspect.KindBlockVolume:
		if n.Orphan {
			parts = append(parts, "ORPHANED")
		}
		parts = append(parts, podOf(n), strings.TrimPrefix(n.Plugin, "kubernetes.io/"))
		if n.Kind == inspect.KindBlockVolume {
			parts = append(parts, "block device")
		}
	case string(storage.KindDisk):
		parts = []string{cmp.Or(n.Model, "disk")}
	case n.Model: // the model of an md device is its level
		parts = []string{n.Kind}
	default:
		parts = []string{n.Kind, n.Model}
	}
	if n.ReadOnly {
		parts = append(parts, "(read-only)")
	}
	for i := range parts {
		parts[i] = terminal.Escape(parts[i])
	}
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), " ")
}

func filesystemText(n *inspect.Node) []string {
	var parts []string
	if len(n.Mountpoints) > 0 {
		parts = append(parts, terminal.Shorten(terminal.Escape(n.Mountpoints[0]), maxPath))
	}
	if more := otherMounts(n); more > 0 {
		parts = append(parts, "(+"+strconv.Itoa(more)+")")
	}
	if n.Reason != "" {
		parts = append(parts, "its disk is not known: "+n.Reason)
	}
	return parts
}

// otherMounts counts the mountpoints after the first that have no row as a volume.
func otherMounts(n *inspect.Node) int {
	more := -1
	for _, m := range n.Mountpoints {
		if !slices.ContainsFunc(n.Children, func(c *inspect.Node) bool { return c.Path == m }) {
			more++
		}
	}
	return more
}

func podOf(n *inspect.Node) string { return cmp.Or(PodName(n.Namespace, n.Pod), "pod "+n.UID) }

func blank(s string) string { return cmp.Or(s, terminal.Blank) }

// firstOf returns as many elements as are printed.
func firstOf[T any](list []T, all bool) []T {
	if all {
		return list
	}
	return list[:min(len(list), maxRows)]
}

func writeCosts(out *bytes.Buffer, costs []inspect.Cost, policyName, promised string) {
	if len(costs) == 0 {
		return
	}
	fmt.Fprintf(out, "\nWeights need io.cost. Policy: %s\n", terminal.Escape(policyName))
	t := terminal.NewTable(out, "DISK", "IO.COST", "MODEL FROM", "QOS FROM")
	var warnings []string
	disks := map[string][]string{} // by warning
	for i := range costs {
		c := &costs[i]
		state := string(c.State)
		if c.By != "" {
			state += " by " + c.By
		}
		t.Row(c.Disk, withReason(state, c.Reason), string(c.Model.Origin), string(c.QOS.Origin))
		if c.Warning == "" {
			continue
		}
		if disks[c.Warning] == nil {
			warnings = append(warnings, c.Warning)
		}
		disks[c.Warning] = append(disks[c.Warning], c.Disk)
	}
	t.Flush()
	if promised != "" {
		terminal.Notes(out, "note", promised)
	}
	for _, w := range warnings {
		terminal.Notes(out, "warning", strings.Join(disks[w], ", ")+": "+w)
	}
}

const orphanHelp = `nri-blkio unmounts nothing. See that no pod of the cluster has the UID, end what holds the volume, and restart the
kubelet: it looks for such volumes as it starts. What is still there then: umount MOUNTPOINT on the node, and detach
or delete the volume as its driver says.`

func writeOrphans(out *bytes.Buffer, orphans []inspect.Orphan) {
	if len(orphans) == 0 {
		return
	}
	fmt.Fprintln(out, "\nOrphaned volumes, still mounted without a process of their pod:")
	for i := range orphans {
		o := &orphans[i]
		// The UID is always printed: another pod may have the same name.
		pod := terminal.Escape(o.UID)
		if o.Pod != "" {
			pod = terminal.Escape(PodName(o.Namespace, o.Pod)) + " (" + pod + ")"
		}
		on := o.Type
		if len(o.Disks) > 0 {
			on += " on " + strings.Join(o.Disks, ",")
		}
		fmt.Fprintf(out, "%s\n  volume %s of pod %s, %s\n  %s\n", terminal.Escape(o.Mountpoint), terminal.Escape(o.Volume), pod, terminal.Escape(on), o.Reason)
		for _, m := range firstOf(o.Mounts, false) {
			fmt.Fprintf(out, "  also mounted at %s\n", terminal.Escape(m))
		}
		writeMore(out, len(o.Mounts))
		for _, h := range firstOf(o.Holders, false) {
			fmt.Fprintf(out, "  held by %s\n", holderText(&h))
		}
		writeMore(out, len(o.Holders))
		if len(o.Holders) == 0 {
			fmt.Fprintln(out, "  no process was found that holds it")
		}
	}
	fmt.Fprintln(out, orphanHelp)
}

// writeOrphanTable writes the section of status.
func writeOrphanTable(out *bytes.Buffer, s *inspect.Status) {
	if len(s.Orphans) > 0 {
		fmt.Fprintln(out, "\nOrphaned volumes, still mounted without a process of their pod (\"nri-blkio devices\" lists the processes that hold them):")
		t := terminal.NewTable(out, "POD", "VOLUME", "DISK", "MOUNTPOINT", "WHY")
		for i := range s.Orphans {
			o := &s.Orphans[i]
			t.Row(cmp.Or(PodName(o.Namespace, o.Pod), o.UID), o.Volume, strings.Join(o.Disks, ","), o.Mountpoint, o.Reason)
		}
		t.Flush()
	}
	if s.OrphansNote != "" {
		terminal.Notes(out, "note", s.OrphansNote)
	}
}

func writeMore(out *bytes.Buffer, n int) {
	if n > maxRows {
		fmt.Fprintf(out, "  and %d more, in -o json\n", n-maxRows)
	}
}

// holderText describes a holder in one line. A process chooses its own comm.
func holderText(h *inspect.Holder) string {
	var how []string
	if h.OpenFiles > 0 {
		how = append(how, inspect.Count(h.OpenFiles, "open file"))
	}
	if h.WorkingDir {
		how = append(how, "its working directory is there")
	}
	if h.Mountpoint != "" {
		how = append(how, "its mount namespace has it at "+terminal.Shorten(terminal.Escape(h.Mountpoint), maxPath))
	}
	of := ""
	switch {
	case h.Pod != "":
		of = " of pod " + terminal.Escape(PodName(h.Namespace, h.Pod))
	case h.UID != "":
		of = " of pod " + terminal.Escape(h.UID)
	}
	return fmt.Sprintf("process %d (%s)%s: %s", h.PID, terminal.Escape(h.Comm), of, strings.Join(how, ", "))
}
