package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
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

func TestHolders(t *testing.T) {
	data, err := os.ReadFile("testdata/orphans.json") // of "devices -o json" on the node of inspect's tests
	if err != nil {
		t.Fatal(err)
	}
	var orphans []inspect.Orphan
	if err := json.Unmarshal(data, &orphans); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	writeOrphans(&out, orphans)
	want, err := os.ReadFile("testdata/orphans.golden")
	if os.Getenv("UPDATE_SCRIPTS") != "" {
		want = out.Bytes()
		err = os.WriteFile("testdata/orphans.golden", want, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), out.String()); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	if strings.ContainsAny(out.String(), "\x1b\x07\r\t") {
		t.Errorf("control characters in\n%q", out.String())
	}
}
