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
