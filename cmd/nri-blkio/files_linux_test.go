package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/nri-blkio/nri-blkio/plugin/repair"
)

// TestPrintFilesNotes: status tells why files are not moved, or late.
func TestPrintFilesNotes(t *testing.T) {
	const reason = "Debian kernel 6.1.176 has CVE-2026-64378, which is fixed in 6.1.178"
	for _, tt := range []struct {
		report repair.Report
		want   string // a part of the last line; "" for no note
	}{
		{repair.Report{Mode: repair.ModeRepair}, ""},
		{repair.Report{Mode: repair.ModeRepair, Reason: "moved late"}, "moved late"},
		{repair.Report{Mode: repair.ModeObserve}, "writeback.repair is off"},
		{repair.Report{Mode: repair.ModeGated, Reason: reason}, "files are not moved to their writers: " + reason},
		{repair.Report{Mode: repair.ModeUnavailable, Reason: "no BTF"}, "no BTF"},
	} {
		var out bytes.Buffer
		a := app{stdout: &out}
		if err := a.printFiles(&tt.report); err != nil {
			t.Fatal(err)
		}
		if got := out.String(); strings.Contains(got, "note:") != (tt.want != "") || !strings.Contains(got, tt.want) {
			t.Errorf("%+v: got %q, want %q", tt.report, got, tt.want)
		}
	}
}
