package report

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/plugin/why"
)

// The cgroups of a pod and of its container.
const (
	podPath = "kubepods.slice/kubepods-pod11.slice"
	dbPath  = podPath + "/cri-containerd-0a.scope"
)

func topOf() why.Top {
	part := func(p float64) *float64 { return &p }
	limit := &why.Limit{Key: "wiops", Value: "2k", Used: 0.994, From: "limits/container.db #1"}
	return why.Top{Rows: []why.Row{
		{
			Subject: why.Subject{Namespace: "prod", Pod: "postgres-cluster-primary-0", Container: "database\x1b[2J", Cgroup: dbPath},
			Disk:    why.Disk{Disk: "nvme0n1", ReadBytes: 1010 << 10, WriteBytes: 93 << 20 / 10, ReadOps: 12, WriteOps: 1988, Limit: limit},
			Held:    part(0.987), Others: part(12.5), Waiting: part(0.5),
		},
		{Subject: why.Subject{Namespace: "prod", Pod: "web", Cgroup: podPath}, Disk: why.Disk{Disk: "vdb", Limit: &why.Limit{Key: "wbps", Value: "1Mi"}}},
		{Subject: why.Subject{Cgroup: dbPath}},
	}}
}

// TestWriteTop verifies the list: for a program, and on a terminal of 80 columns. What a tenant named does not reach the
// terminal as it is.
func TestWriteTop(t *testing.T) {
	top := topOf()
	for _, tt := range []struct {
		name  string
		width int
		want  string
	}{
		{"narrow", 0, `
POD                              CONTAINER                DISK     READ   WRITE  OPS   LIMIT      %HELD  %OTHER  %PSI
prod/postgres-cluster-primary-0  "database\x1b[2J"        nvme0n1  1010K  9.3M   2000  99% wiops  99     1250    50
prod/web                         (the pod)                vdb      0      0      0     0% wbps    -      -       -
kubepods-pod11.slice             cri-containerd-0a.scope  -        0      0      0     -          -      -       -
`},
		{"80 columns", 80, `
POD           CONTAINER     DISK    READ  WRITE OPS  LIMIT     %HELD %OTHER %PSI
prod/p…mary-0 "datab…1b[2J" nvme0n1 1010K 9.3M  2000 99% wiops 99    1250   50
prod/web      (the pod)     vdb     0     0     0    0% wbps   -     -      -
kubepo….slice cri-co….scope -       0     0     0    -         -     -      -
`},
	} {
		var out bytes.Buffer
		WriteTop(&out, &top, tt.width)
		if d := cmp.Diff(strings.TrimPrefix(tt.want, "\n"), out.String()); d != "" {
			t.Errorf("%s: -want +got:\n%s", tt.name, d)
		}
	}
}

// TestWriteTopFits verifies that no line is longer than the terminal, with the reasons why waits are unknown.
func TestWriteTopFits(t *testing.T) {
	top := topOf()
	top.Unknown = []string{"what I/O and threads wait for: " + strings.Repeat("x", 200)}
	var fitted bytes.Buffer
	WriteTop(&fitted, &top, 80)
	for line := range strings.Lines(fitted.String()) {
		if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 80 {
			t.Errorf("%d characters: %s", n, line)
		}
	}
	var out bytes.Buffer
	WriteTop(&out, &why.Top{Unknown: []string{"a\x1b"}}, 0)
	if want := "unknown: a\\x1b\nno such container does I/O, has a limit, or waits\n"; out.String() != want {
		t.Errorf("an empty list is %q, want %q", out.String(), want)
	}
}
