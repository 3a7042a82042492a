package report

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/plugin/health"
	"github.com/nri-blkio/nri-blkio/plugin/inspect"
	"github.com/nri-blkio/nri-blkio/policy"
)

// TestWriteValues verifies that status reports that limits are not enforced, the source of each value, and why a
// value is not in force.
func TestWriteValues(t *testing.T) {
	connected := []inspect.Part{{Part: health.Limits, State: health.Connected, Since: time.Unix(1e9, 0), Detail: "containerd"}}
	container := inspect.Subject{Namespace: "prod", Pod: "db-0", Container: "db"}
	values := []inspect.Value{
		{Subject: container, Disk: "sda", Key: "wbps", Asked: "1Mi", InForce: "max", Source: policy.Source{Name: "limits.blkio.noderesource.dev/container.db", Entry: 1, Target: "/data"}, State: inspect.ValueError, Error: "no disk"},
	}
	row := "POD        CONTAINER  TARGET  DISK  KEY   REQUESTED  IN FORCE  USED  FROM                    STATE\n" +
		"prod/db-0  db         /data   sda   wbps  1Mi        max       -     limits/container.db #1  error: no disk\n"
	for _, tt := range []struct {
		name   string
		status inspect.Status
		want   string
	}{
		{
			name: "no plugin",
			want: "nothing enforces limits for new containers on this node: the limits part is not connected to a runtime\nno limits requested\n",
		},
		{name: "no limits", status: inspect.Status{Parts: connected}, want: "no limits requested\n"},
		{
			name: "all is left out",
			status: inspect.Status{
				Parts: connected,
				Notes: []inspect.Note{{Kind: "warning", Namespace: "prod", Pod: "db-0", Container: "db", Text: "rule a, class b: this node's kernel has no io.max"}},
			},
			want: "no limits in force\nwarning: prod/db-0 db: rule a, class b: this node's kernel has no io.max\n",
		},
		{name: "a value", status: inspect.Status{Parts: connected, Values: values}, want: row},
		{
			name: "notes",
			status: inspect.Status{
				Parts: connected, Values: values, Notes: []inspect.Note{{Kind: "warning", Namespace: "prod", Pod: "db-0", Container: "db", Text: "no memory limit\x1b"}},
			},
			want: row + "warning: prod/db-0 db: no memory limit\\x1b\n",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var out bytes.Buffer
			writeValues(&out, &tt.status, true, false)
			if d := cmp.Diff(tt.want, out.String()); d != "" {
				t.Errorf("-want +got:\n%s", d)
			}
		})
	}
}

// TestWriteLimitsInForce verifies the narrow table: for all pods and for one, and that a backstop has a row only if it is not in force.
func TestWriteLimitsInForce(t *testing.T) {
	value := func(container, key, asked, state string) inspect.Value {
		return inspect.Value{
			Subject: inspect.Subject{Namespace: "prod", Pod: "db-0", Container: container}, Disk: "sda", Key: key, Asked: asked, InForce: "9",
			Source: policy.Source{Target: "/data"}, State: state,
		}
	}
	backstop := func(state string) inspect.Value {
		v := value("", "wbps", "1Mi", state)
		v.Source = policy.Source{Kind: policy.FromBackstop}
		return v
	}
	failed := value("db", "", "", inspect.ValueError)
	failed.Error = "no disk"
	used, part := value("db", "wbps", "1Mi", inspect.ValueOK), 0.984
	used.Used = &part
	for _, tt := range []struct {
		name     string
		isOnePod bool
		values   []inspect.Value
		want     string
	}{
		{"all pods", false, []inspect.Value{backstop(inspect.ValueOK), value("db", "wbps", "1Mi", inspect.ValueOK), failed}, "" +
			"POD        CONTAINER  TARGET  DISK  LIMIT     USED  STATE\n" +
			"prod/db-0  db         /data   sda   wbps=1Mi  -     ok\n" +
			"prod/db-0  db         /data   sda   -         -     error: no disk\n"},
		{"used", false, []inspect.Value{used}, "" +
			"POD        CONTAINER  TARGET  DISK  LIMIT     USED  STATE\n" +
			"prod/db-0  db         /data   sda   wbps=1Mi  98%   ok\n"},
		{"one container", true, []inspect.Value{value("db", "weight", "500", inspect.ValueDrift)}, "" +
			"TARGET  DISK  LIMIT       USED  STATE\n" +
			"/data   sda   weight 500  -     drift: the kernel has weight 9\n"},
		{"two containers", true, []inspect.Value{value("db", "wiops", "2k", inspect.ValueOK), value("log", "wiops", "2k", inspect.ValueOK)}, "" +
			"CONTAINER  TARGET  DISK  LIMIT     USED  STATE\n" +
			"db         /data   sda   wiops=2k  -     ok\n" +
			"log        /data   sda   wiops=2k  -     ok\n"},
		{"only the pod", true, []inspect.Value{value("", "wbps", "1Mi", inspect.ValueOK), backstop(inspect.ValueMissing)}, "" +
			"CONTAINER  TARGET  DISK  LIMIT     USED  STATE\n" +
			"(the pod)  /data   sda   wbps=1Mi  -     ok\n" +
			"(the pod)  -       sda   wbps=1Mi  -     missing\n"},
	} {
		var out bytes.Buffer
		s := inspect.Status{Parts: []inspect.Part{{Part: health.Limits, State: health.Connected}}, Values: tt.values}
		writeValues(&out, &s, false, tt.isOnePod)
		if d := cmp.Diff(tt.want, out.String()); d != "" {
			t.Errorf("%s: -want +got:\n%s", tt.name, d)
		}
	}
}

// TestWriteParts verifies that a rejected policy is a warning of each part that has rejected it.
func TestWriteParts(t *testing.T) {
	var out bytes.Buffer
	writeParts(&out, []inspect.Part{
		{Part: health.Limits, State: health.Connected, PolicyRejected: "line 3: \x1b"}, {Part: health.Writeback, State: "repair"},
	})
	want := "PART       STATE      SINCE  DETAIL\nlimits     connected  -      -\nwriteback  repair     -      -\n" +
		"warning: limits: the new policy is rejected, and the former one stays in force: line 3: \\x1b\n"
	if d := cmp.Diff(want, out.String()); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

// TestWriteStatus verifies the order of the sections, and that files are only mentioned where limits are requested.
func TestWriteStatus(t *testing.T) {
	s := inspect.Status{
		Parts:  []inspect.Part{{Part: health.Limits, State: health.Connected, Since: time.Unix(1e9, 0), Detail: "mode enforce"}},
		Values: []inspect.Value{{Subject: inspect.Subject{Namespace: "prod", Pod: "db-0"}, State: inspect.ValueOK}},
		Dead:   []inspect.DeadRow{{Pod: "db-0", DrainsAt: "no limit"}},
		Orphans: []inspect.Orphan{{
			OrphanPod: inspect.OrphanPod{UID: "u1"}, OrphanVolume: inspect.OrphanVolume{Volume: "data", Mountpoint: "/m", Disks: []string{"sda", "sdb"}}, Reason: "the pod has no cgroup",
		}},
		OrphansNote: "the mount table cannot be read",
		Reported: inspect.Reported{
			Weights: &health.Weights{Shares: []health.Share{{Pod: "w", Weight: 50}}, Disks: []health.CostDisk{{Disk: "sda", Enabled: true, Vrate: 99.6}, {Disk: "sdb"}}},
			Budgets: &health.Budgets{Sums: []health.BudgetSum{{Namespace: "prod"}}},
		},
	}
	var out bytes.Buffer
	WriteStatus(&out, &s, false, false)
	text := out.String()
	at := 0
	for _, part := range []string{
		"limits  connected  2001-09-09T01:46:40Z  mode enforce\n", "\nPOD        CONTAINER  TARGET  DISK  LIMIT", "\nWeights:\n", "\nWEIGHTS ON  ", "\nsda         -           -         100%   ok\n",
		"\nBudgets:\n", "\nEnded containers", "\nOrphaned volumes", "u1   data    sda,sdb  /m          the pod has no cgroup\n", "note: the mount table",
		"note: writes to files are not observed: the writeback part does not run\n",
	} {
		next := strings.Index(text[at:], part)
		if next < 0 {
			t.Fatalf("no %q after byte %d of\n%s", part, at, text)
		}
		at += next + len(part) - 1
	}
	if strings.Contains(text, "\nsdb ") {
		t.Errorf("a disk without io.cost has a row in\n%s", text)
	}
	out.Reset()
	s.Orphans = nil
	if WriteStatus(&out, &s, false, true); strings.Contains(out.String(), "POD  ") {
		t.Errorf("of one pod:\n%s", out.String())
	}
	out.Reset()
	if WriteStatus(&out, &s, true, true); strings.Count(out.String(), "POD  ") < 3 {
		t.Errorf("the wide tables of one pod:\n%s", out.String())
	}
	s.Values = nil
	out.Reset()
	if WriteStatus(&out, &s, false, false); strings.Contains(out.String(), "not observed") {
		t.Errorf("without limits:\n%s", out.String())
	}
}
