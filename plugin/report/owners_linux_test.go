package report

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/plugin/why"
)

// TestOwners verifies that there is a row for each file that was read, and no table without any.
func TestOwners(t *testing.T) {
	var out bytes.Buffer
	if WriteOwners(&out, nil); out.Len() > 0 {
		t.Errorf("without a file: %q", out.String())
	}
	WriteOwners(&out, []why.FileOwner{
		{Path: "/data/\x1b[2J", State: why.OwnerLive, Namespace: "prod", Pod: "db-0", Container: "db", Cgroup: "kubepods/pod1/db", Foreign: 9},
		{Path: "/data/new", State: why.OwnerNone},
		{Path: "/data/sys", State: why.OwnerLive, Cgroup: "system.slice"},
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

func TestOwnerText(t *testing.T) {
	for _, tt := range []struct {
		row  why.FileOwner
		want string
	}{
		{why.FileOwner{State: why.OwnerLive, Namespace: "prod", Pod: "db-0", Container: "db"}, "prod/db-0 db"},
		{why.FileOwner{State: why.OwnerLive, Namespace: "prod", Pod: "db-0"}, "prod/db-0"},
		{why.FileOwner{State: why.OwnerLive}, ""},
		{why.FileOwner{State: why.OwnerEnded, Namespace: "prod", Pod: "db-0", Container: "db"}, "prod/db-0 db (ended)"},
		{why.FileOwner{State: why.OwnerGone}, "gone"},
		{why.FileOwner{State: why.OwnerNone}, "none"},
	} {
		if got := ownerText(&tt.row); got != tt.want {
			t.Errorf("%+v: %q, want %q", tt.row, got, tt.want)
		}
	}
}
