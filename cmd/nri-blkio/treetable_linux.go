package main

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/nri-blkio/nri-blkio/blkio/storage"
	"github.com/nri-blkio/nri-blkio/plugin/inspect"
)

const (
	// maxRows is how many children of one thing the table has.
	maxRows = 20
	// maxLabel keeps the table on a screen whatever a volume's name is. A claim's,
	// "pvc-" and a UUID, fits.
	maxLabel = 40
	// maxPath is for mountpoints: those of CSI drivers have hashes in them.
	maxPath = 64
)

// treeTable prints the tree, with reasons as numbered lines below.
type treeTable struct {
	*table
	all     bool
	reasons []string // in the order of their numbers
}

func (a *app) printTree(r *inspect.DevicesReport, all bool) error {
	t := treeTable{table: newTable(a.stdout, "NAME", "DEV", "SIZE", "MAX", "WEIGHT", "LATENCY", "BUFFERED", "WHAT"), all: all}
	for _, n := range r.Devices {
		t.node(n, "", "")
	}
	if err := t.flush(); err != nil {
		return err
	}
	if len(t.reasons) > 0 {
		fmt.Fprintln(a.stdout)
	}
	for i, reason := range t.reasons {
		fmt.Fprintf(a.stdout, "[%d] %s\n", i+1, oneLine(reason))
	}
	if err := a.printElsewhere(r.Elsewhere, all); err != nil {
		return err
	}
	a.printOrphans(r.Orphans)
	return nil
}

// node prints a thing and what is on it. first is before its name, rest before
// those of its children.
func (t *treeTable) node(n *inspect.Node, first, rest string) {
	mark := ""
	if n.Again {
		mark = " ^"
	}
	t.row(first+shorten(safe(n.Name), maxLabel)+mark, nodeNumber(n), blank(nodeSize(n)),
		t.cell("max", n.Max), t.cell("weight", n.Weight), t.cell("latency", n.Latency), t.cell("buffered", n.Buffered), nodeText(n))
	shown := n.Children
	if len(shown) > maxRows && !t.all {
		shown = shown[:maxRows]
	}
	for i, c := range shown {
		if i == len(n.Children)-1 {
			t.node(c, rest+"└─", rest+"  ")
		} else {
			t.node(c, rest+"├─", rest+"│ ")
		}
	}
	if more := len(n.Children) - len(shown); more > 0 {
		t.row(rest+"└─"+fmt.Sprintf("and %d more", more), " ", " ", " ", " ", " ", " ", "--all draws them")
	}
}

// cell is empty where the question is none.
func (t *treeTable) cell(what string, s *inspect.Support) string {
	if s == nil {
		return " "
	}
	if s.Reason == "" {
		return s.OK.String()
	}
	reason := what + ": " + s.Reason
	for i, known := range t.reasons {
		if known == reason {
			return fmt.Sprintf("%s [%d]", s.OK, i+1)
		}
	}
	t.reasons = append(t.reasons, reason)
	return fmt.Sprintf("%s [%d]", s.OK, len(t.reasons))
}

// nodeNumber is that of a block device: a filesystem's is of it, or of nothing.
func nodeNumber(n *inspect.Node) string {
	if n.Kind == inspect.KindFilesystem {
		return " "
	}
	return blank(n.Dev)
}

func nodeSize(n *inspect.Node) string {
	if n.Size == 0 {
		return ""
	}
	return formatBytes(n.Size)
}

// nodeText is the last column: what a thing is.
func nodeText(n *inspect.Node) string {
	if n.Again {
		return "see above"
	}
	var parts []string
	add := func(s string) {
		if s != "" {
			parts = append(parts, safe(s))
		}
	}
	switch n.Kind {
	case inspect.KindFilesystem:
		if len(n.Mountpoints) > 0 {
			add(shorten(safe(n.Mountpoints[0]), maxPath))
		}
		if more := otherMounts(n); more > 0 {
			add("(+" + strconv.Itoa(more) + ")")
		}
		if n.Reason != "" {
			add("its disk is not known: " + n.Reason)
		}
	case inspect.KindSwap:
		add("swap, " + formatBytes(n.Used) + " used")
	case inspect.KindVolume, inspect.KindBlockVolume:
		if n.Orphan {
			add("ORPHANED")
		}
		add(nodeOwner(n))
		add(strings.TrimPrefix(n.Plugin, "kubernetes.io/"))
		if n.Kind == inspect.KindBlockVolume {
			add("block device")
		}
	case string(storage.KindDisk):
		add(cmp.Or(n.Model, "disk"))
	case n.Model: // an md device's is its level
		add(n.Kind)
	default:
		add(n.Kind)
		add(n.Model)
	}
	if n.ReadOnly {
		add("(read-only)")
	}
	return blank(strings.Join(parts, " "))
}

// otherMounts are those that have no row as a volume.
func otherMounts(n *inspect.Node) int {
	rows := map[string]bool{}
	for _, c := range n.Children {
		rows[c.Path] = true
	}
	more := -1
	for _, m := range n.Mountpoints {
		if !rows[m] {
			more++
		}
	}
	return more
}

// nodeOwner names the pod.
func nodeOwner(n *inspect.Node) string {
	if n.Pod == "" {
		return "pod " + n.UID
	}
	return n.Namespace + "/" + n.Pod
}

// printElsewhere lists what a limit can never concern, but for what is in memory:
// each pod has its token there.
func (a *app) printElsewhere(list []*inspect.Node, all bool) error {
	var shown []*inspect.Node
	for _, n := range list {
		if !n.InMemory {
			shown = append(shown, n)
		}
	}
	if len(shown) == 0 {
		return nil
	}
	fmt.Fprintln(a.stdout, "\nVolumes that are on no disk:")
	t := newTable(a.stdout, "VOLUME", "POD", "WHY")
	more := 0
	if len(shown) > maxRows && !all {
		shown, more = shown[:maxRows], len(shown)-maxRows
	}
	for _, n := range shown {
		t.row(shorten(safe(n.Name), maxLabel), nodeOwner(n), n.Reason)
	}
	if more > 0 {
		t.row(fmt.Sprintf("and %d more", more), " ", " ")
	}
	return t.flush()
}

// blank leaves a cell empty: rows of many kinds are easier to read so.
func blank(s string) string {
	if s == "" {
		return " "
	}
	return s
}

// shorten keeps both ends, which is where names differ.
func shorten(s string, limit int) string {
	runes := []rune(s)
	if len(runes) <= limit {
		return s
	}
	head := limit / 2
	return string(runes[:head]) + "…" + string(runes[len(runes)-(limit-head-1):])
}
