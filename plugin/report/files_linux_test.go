package report

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/plugin/repair"
)

// TestFilesNotes verifies that status reports why files are not moved, or late.
func TestFilesNotes(t *testing.T) {
	const reason = "Debian kernel 6.1.176 has CVE-2026-64378, which is fixed in 6.1.178"
	for _, tt := range []struct {
		report repair.Report
		want   string // a part of the last line; "" for no note
	}{
		{repair.Report{Mode: repair.ModeRepair}, ""},
		{repair.Report{Mode: repair.ModeObserve}, "writeback.repair is off"},
		{repair.Report{Mode: repair.ModeGated, Reason: reason}, "files are not moved to their writers: " + reason},
		{repair.Report{Mode: repair.ModeUnavailable, Reason: "no BTF"}, "no BTF"},
	} {
		var out bytes.Buffer
		writeFiles(&out, &tt.report)
		if got := out.String(); strings.Contains(got, "note:") != (tt.want != "") || !strings.Contains(got, tt.want) {
			t.Errorf("%+v: got %q, want %q", tt.report, got, tt.want)
		}
	}
}

// TestFiles covers names of files and containers that tenants have chosen.
func TestFiles(t *testing.T) {
	of := func(pod string) repair.NamedCgroup {
		return repair.NamedCgroup{CgroupID: 7, ContainerName: repair.ContainerName{Namespace: "prod", Pod: pod, Container: "c"}}
	}
	var out bytes.Buffer
	writeFiles(&out, &repair.Report{
		Mode: repair.ModeRepair, More: 3,
		Filesystems: []repair.Filesystem{{Mountpoint: "/mnt/a"}, {Mountpoint: "/mnt/\x1b[2J", Hangs: true}},
		Files: []repair.File{
			{Path: "/mnt/a/\x1b]0;", Owner: of("log-0"), Writers: []repair.Writer{{NamedCgroup: of("db-0"), Share: 0.75}}, State: "waiting", Misplaced: 1536, Since: time.Unix(1e9, 0)},
			{Mountpoint: "/mnt/a/", Inode: 7, Subvolume: 5, Owner: of("log-0"), State: "failed", Failure: "busy"},
		},
	})
	want := `
Files are watched on: /mnt/a, "/mnt/\x1b[2J" (does not answer)
FILE                            OWNER         WRITERS           MISPLACED  STATE         SINCE
"/mnt/a/\x1b]0;"                prod/log-0 c  prod/db-0 c 75%  1.5K       waiting       2001-09-09T01:46:40Z
/mnt/a inode 7 of subvolume 5   prod/log-0 c  -                 0          failed: busy  -
and 3 more
`
	if d := cmp.Diff(strings.Fields(want), strings.Fields(out.String())); d != "" {
		t.Errorf("-want +got:\n%s\n%s", d, out.String())
	}
}
