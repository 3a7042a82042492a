package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/plugin/inspect"
)

// TestHolderText verifies that a holder has the name of its pod, or its UID, and each way in which it holds the
// volume. A process chooses its comm and its mountpoints.
func TestHolderText(t *testing.T) {
	long := "/run/" + strings.Repeat("x", 100)
	for _, tt := range []struct {
		holder inspect.Holder
		want   string
	}{
		{inspect.Holder{PID: 7, Comm: "db", OpenFiles: 1}, "process 7 (db): 1 open file"},
		{inspect.Holder{PID: 7, Comm: "db", WorkingDir: true, OpenFiles: 2}, "process 7 (db): 2 open files, its working directory is there"},
		{inspect.Holder{PID: 7, Comm: "db", UID: "1_2", WorkingDir: true}, "process 7 (db) of pod 1_2: its working directory is there"},
		{inspect.Holder{PID: 7, Comm: "db", UID: "1_2", Namespace: "prod", Pod: "db-0", Mountpoint: "/x"}, "process 7 (db) of pod prod/db-0: its mount namespace has it at /x"},
		{inspect.Holder{PID: 7, Comm: "\x1b[2J", Mountpoint: "/x\n"}, `process 7 ("\x1b[2J"): its mount namespace has it at "/x\n"`},
		{inspect.Holder{PID: 7, Mountpoint: long}, "process 7 (): its mount namespace has it at " + long[:32] + "…" + long[len(long)-31:]},
	} {
		if got := holderText(&tt.holder); got != tt.want {
			t.Errorf("got  %s\nwant %s", got, tt.want)
		}
	}
}

// TestManyHolders verifies that the list of holders and of mounts ends after some lines, with the number of the
// rest.
func TestManyHolders(t *testing.T) {
	for n, want := range map[int][2]int{0: {0, 0}, maxRows: {maxRows, 0}, maxRows + 1: {maxRows, 1}, maxRows + 1000: {maxRows, 1000}} {
		var o inspect.Orphan
		for i := range n {
			o.Mounts = append(o.Mounts, fmt.Sprint("/", i))
			o.Holders = append(o.Holders, inspect.Holder{PID: i, OpenFiles: 1})
		}
		var out bytes.Buffer
		writeOrphans(&out, []inspect.Orphan{o})
		got := [2]int{strings.Count(out.String(), "  held by "), 0}
		if n := strings.Count(out.String(), "  also mounted at "); n != got[0] {
			t.Errorf("%d lines of mounts, %d of holders", n, got[0])
		}
		if more := fmt.Sprintf("  and %d more, in -o json\n", want[1]); want[1] > 0 && strings.Count(out.String(), more) == 2 {
			got[1] = want[1]
		}
		if got != want || (n == 0) != strings.Contains(out.String(), "no process was found") || want[1] == 0 && strings.Contains(out.String(), " more, ") {
			t.Errorf("of %d: %v, want %v\n%s", n, got, want, out.String())
		}
	}
}

// TestNodeText covers the last column of the tree. Tenants and devices choose most of it.
func TestNodeText(t *testing.T) {
	volume := func(kind string, change func(n *inspect.Node)) inspect.Node {
		n := inspect.Node{Kind: kind, Place: inspect.Place{UID: "1", Plugin: "kubernetes.io/csi"}}
		if change != nil {
			change(&n)
		}
		return n
	}
	filesystem := func(p inspect.Place, children ...*inspect.Node) inspect.Node {
		return inspect.Node{Kind: inspect.KindFilesystem, Place: p, Children: children}
	}
	for _, tt := range []struct {
		node inspect.Node
		want string
	}{
		{inspect.Node{Kind: "disk", Again: true}, "see above"},
		{inspect.Node{Kind: "disk"}, "disk"},
		{inspect.Node{Kind: "disk", Device: inspect.Device{Model: "\x1b[31m", ReadOnly: true}}, `"\x1b[31m" (read-only)`},
		{inspect.Node{Kind: "lvm", Device: inspect.Device{Model: "vg-data"}}, "lvm vg-data"},
		{inspect.Node{Kind: "raid1", Device: inspect.Device{Model: "raid1"}}, "raid1"},
		{inspect.Node{Kind: inspect.KindSwap, Device: inspect.Device{Used: 1 << 20}}, "swap, 1M used"},
		{volume(inspect.KindVolume, nil), "pod 1 csi"},
		{volume(inspect.KindVolume, func(n *inspect.Node) { n.Namespace, n.Pod, n.Orphan = "prod", "db-0", true }), "ORPHANED prod/db-0 csi"},
		{volume(inspect.KindVolume, func(n *inspect.Node) { n.Plugin = "" }), "pod 1"},
		{volume(inspect.KindBlockVolume, nil), "pod 1 csi block device"},
		{filesystem(inspect.Place{Mountpoints: []string{"/a"}}), "/a"},
		{filesystem(inspect.Place{Mountpoints: []string{"/a", "/b", "/c"}}), "/a (+2)"},
		{filesystem(inspect.Place{Mountpoints: []string{"/a", "/v"}}, &inspect.Node{Place: inspect.Place{Path: "/v"}}), "/a"},
		{filesystem(inspect.Place{Mountpoints: []string{"/a\t"}, Reason: "no such disk"}), `"/a\t" its disk is not known: no such disk`},
		{filesystem(inspect.Place{Reason: "no such disk"}), "its disk is not known: no such disk"},
	} {
		if got := nodeText(&tt.node); got != tt.want {
			t.Errorf("%+v: got %q, want %q", tt.node, got, tt.want)
		}
	}
}

// TestElsewhere verifies that volumes in memory are left out, and of many the number of the rest is shown.
func TestElsewhere(t *testing.T) {
	nodes := []*inspect.Node{{Name: "token", Place: inspect.Place{UID: "1", InMemory: true}}}
	var out bytes.Buffer
	if writeElsewhere(&out, nodes, true); out.Len() > 0 {
		t.Errorf("of volumes in memory: %s", out.String())
	}
	for i := range maxRows + 2 {
		nodes = append(nodes, &inspect.Node{Name: fmt.Sprintf("share%d\x1b", i), Place: inspect.Place{UID: "1", Reason: "nfs"}})
	}
	for all, want := range map[bool]int{true: maxRows + 2, false: maxRows} {
		out.Reset()
		writeElsewhere(&out, nodes, all)
		if n := strings.Count(out.String(), "share"); n != want || strings.Contains(out.String(), "and 2 more") == all || strings.Contains(out.String(), "token") || strings.Contains(out.String(), "\x1b") {
			t.Errorf("all %t: %d volumes, want %d\n%s", all, n, want, out.String())
		}
	}
}

// TestDeadText covers an ended container whose rate was measured, and one whose data was not counted.
func TestDeadText(t *testing.T) {
	var out bytes.Buffer
	writeDead(&out, &inspect.Status{DeadNote: "inferred\x1b", Dead: []inspect.DeadRow{
		{Owner: inspect.Owner{Namespace: "prod", Pod: "db-0", Container: "a"}, Disk: "sda", DrainsAt: "wbps=1Mi", Measured: 1536, Left: 2048},
		{Owner: inspect.Owner{Namespace: "prod", Pod: "db-0"}, DrainsAt: "no limit"},
	}})
	want := "\nEnded containers with data left to write:\n" +
		"POD        CONTAINER  DISK  DRAINS AT                 LEFT     SINCE\n" +
		"prod/db-0  a          sda   wbps=1Mi, measured 1.5K/s  2K       -\n" +
		"prod/db-0  -          -     no limit                  unknown  -\n" +
		"note: inferred\\x1b\n"
	if d := cmp.Diff(strings.Fields(want), strings.Fields(out.String())); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

// TestOwners verifies that there is a row for each file that was read, and no table without any.
func TestOwners(t *testing.T) {
	var out bytes.Buffer
	if writeOwners(&out, nil); out.Len() > 0 {
		t.Errorf("without a file: %q", out.String())
	}
	writeOwners(&out, []inspect.FileOwner{
		{Path: "/data/\x1b[2J", State: inspect.OwnerLive, Namespace: "prod", Pod: "db-0", Container: "db", Cgroup: "kubepods/pod1/db", Foreign: 9},
		{Path: "/data/new", State: inspect.OwnerNone},
		{Path: "/data/sys", State: inspect.OwnerLive, Cgroup: "system.slice"},
	})
	want := `
FILE               OWNER         CGROUP            FOREIGN
"/data/\x1b[2J"   prod/db-0 db  kubepods/pod1/db  9
/data/new          none          -                 0
/data/sys          -             system.slice      0
`
	if d := cmp.Diff(strings.Fields(want), strings.Fields(out.String())); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}
