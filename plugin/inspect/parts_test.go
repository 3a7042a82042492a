package inspect

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio/hostfs"
	"github.com/nri-blkio/nri-blkio/internal/fakenode"
	"github.com/nri-blkio/nri-blkio/plugin/health"
	"github.com/nri-blkio/nri-blkio/plugin/repair"
)

// writeState writes the reports of the parts of run to a state directory.
func writeState(t *testing.T, reports ...any) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for _, r := range reports {
		part, at := health.Writeback, dir
		if h, ok := r.(*health.Report); ok {
			part = h.Part
		}
		if part == health.Cluster {
			at = health.ClusterDir(health.ExchangeDir(dir))
		}
		if err := hostfs.WriteJSON(health.File(at, part), r); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// partTest is the state that a part wrote, and the Part that is read from it.
type partTest struct {
	name  string
	part  string
	state any // the text that the part wrote
	want  Part
	works bool
}

func (tt *partTest) run(t *testing.T) {
	dir := t.TempDir()
	if tt.state != nil {
		dir = writeState(t, tt.state)
	}
	got, err := ReadPart(dir, tt.part)
	if err != nil {
		t.Fatal(err)
	}
	if got.Works() != tt.works {
		t.Errorf("it works: %t", got.Works())
	}
	got.Report, tt.want.Part = nil, tt.part
	if d := cmp.Diff(tt.want, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

func TestReadPart(t *testing.T) {
	now := time.Now().UTC().Truncate(time.Second)
	for _, tt := range []partTest{
		{name: "limits not running", part: health.Limits, want: Part{State: NotRunning}},
		{name: "writeback not running", part: health.Writeback, want: Part{State: NotRunning}},
		{
			name: "limits connected", part: health.Limits, works: true,
			state: &health.Report{Part: health.Limits, At: now, State: health.Connected, Since: now, Runtime: "containerd 2.1", Mode: "enforce", Pods: 1},
			want:  Part{State: health.Connected, Since: now, Detail: "containerd 2.1, mode enforce, built-in policy, 1 pod with annotations"},
		},
		{
			name: "limits disconnected", part: health.Limits,
			state: &health.Report{
				Part: health.Limits, At: now, State: health.Disconnected, Since: now, Reason: "no socket",
				Mode: "observe", Policy: "/etc/p.yaml", Pods: 3, NotInForce: 2, Failed: 1,
			},
			want: Part{State: health.Disconnected, Since: now, Detail: "no socket, mode observe, policy /etc/p.yaml, " +
				"3 pods with annotations, 2 pods not in force, 1 container without some requested limits"},
		},
		{
			name: "pre-installed", part: health.Limits, works: true,
			state: &health.Report{Part: health.Limits, At: now, State: health.Connected, Mode: "enforce", PolicyOfRuntime: true},
			want:  Part{State: health.Connected, Detail: "mode enforce, policy of the runtime's configuration, 0 pods with annotations"},
		},
		{
			name: "an old report", part: health.Limits, state: &health.Report{Part: health.Limits, At: now.Add(-time.Hour), State: health.Connected},
			want: Part{State: NotRunning},
		},
		{
			name: "validator", part: health.Validator, works: true,
			state: &health.Report{Part: health.Validator, At: now, State: health.Connected, Runtime: "containerd 2.2"},
			want:  Part{State: health.Connected, Detail: "containerd 2.2"},
		},
		{
			name: "cluster", part: health.Cluster, works: true,
			state: &health.Report{Part: health.Cluster, At: now, State: health.Connected, Since: now, Pods: 1},
			want:  Part{State: health.Connected, Since: now, Detail: "documents of 1 pod"},
		},
		{
			name: "cluster without the API server", part: health.Cluster,
			state: &health.Report{Part: health.Cluster, At: now, State: health.Disconnected, Reason: "no answer", Pods: 2},
			want:  Part{State: health.Disconnected, Detail: "no answer, documents of 2 pods"},
		},
		{
			name: "writeback observes", part: health.Writeback, works: true, state: &repair.Report{At: now, Mode: repair.ModeObserve},
			want: Part{State: repair.ModeObserve},
		},
		{
			name: "writeback unavailable", part: health.Writeback, works: true,
			state: &repair.Report{At: now.Add(-time.Hour), Mode: repair.ModeUnavailable, Reason: "no BTF"},
			want:  Part{State: repair.ModeUnavailable, Detail: "no BTF"},
		},
	} {
		t.Run(tt.name, tt.run)
	}
}

// TestReadRejection verifies that a part shows that its policy was rejected.
func TestReadRejection(t *testing.T) {
	now := time.Now().UTC().Truncate(time.Second)
	for _, tt := range []partTest{
		{
			name: "a rejected policy", part: health.Limits, works: true,
			state: &health.Report{Part: health.Limits, At: now, State: health.Connected, Mode: "enforce", Policy: "/etc/p.yaml", PolicyRejected: "line 3"},
			want:  Part{State: health.Connected, Detail: "mode enforce, policy /etc/p.yaml, 0 pods with annotations", PolicyRejected: "line 3"},
		},
		{
			name: "a rejected policy of the writeback part", part: health.Writeback, works: true,
			state: &repair.Report{At: now, Mode: repair.ModeRepair, PolicyRejected: "line 3"},
			want:  Part{State: repair.ModeRepair, PolicyRejected: "line 3"},
		},
	} {
		t.Run(tt.name, tt.run)
	}
}

// TestReadParts verifies that there is a row for the validator or the cluster part only where it runs, or its
// state cannot be read.
func TestReadParts(t *testing.T) {
	now := time.Now()
	names := func(parts []Part) (out []string) {
		for _, p := range parts {
			out = append(out, p.Part+" "+p.State)
		}
		return out
	}
	validator := &health.Report{Part: health.Validator, At: now, State: health.Disconnected}
	cluster := &health.Report{Part: health.Cluster, At: now, State: health.Connected}
	broken := t.TempDir()
	fakenode.WriteFiles(t, broken, map[string]string{"validator.json": "{", "limits.json": "["})
	brokenCluster := t.TempDir()
	fakenode.WriteFiles(t, brokenCluster, map[string]string{"cluster/state/cluster.json": "{"})
	for _, tt := range []struct {
		name  string
		dir   string
		files *repair.Report
		want  []string
		err   string
	}{
		{name: "none", dir: filepath.Join(t.TempDir(), "absent"), want: []string{"limits not running", "writeback not running"}},
		{name: "with files", dir: t.TempDir(), files: &repair.Report{Mode: repair.ModeRepair}, want: []string{"limits not running", "writeback repair"}},
		{name: "with a validator", dir: writeState(t, validator), want: []string{"limits not running", "writeback not running", "validator disconnected"}},
		{name: "with the cluster part", dir: writeState(t, cluster), want: []string{"limits not running", "writeback not running", "cluster connected"}},
		{name: "cluster part unreadable", dir: brokenCluster, want: []string{"limits not running", "writeback not running", "cluster not running"}},
		{name: "unreadable", dir: broken, want: []string{"limits not running", "writeback not running", "validator not running"}, err: "validator.json"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := readParts(tt.dir, tt.files)
			if d := cmp.Diff(tt.want, names(got)); d != "" {
				t.Errorf("-want +got:\n%s", d)
			}
			if (err != nil) != (tt.err != "") || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Errorf("error %v, want %q", err, tt.err)
			}
		})
	}
}

// TestForgedReport verifies that the report of the cluster part, which has fewer privileges, cannot stand for what the limits
// part reports of weights, of budgets and of its policy.
func TestForgedReport(t *testing.T) {
	now := time.Now()
	forged := &health.Report{Part: health.Limits, Mode: "enforce", At: now, State: health.Connected, PolicyRejected: "line 3", Weights: &health.Weights{}, Budgets: &health.Budgets{}}
	dir := writeState(t, &health.Report{Part: health.Limits, At: now, State: health.Connected})
	if err := hostfs.WriteJSON(health.File(health.ClusterDir(health.ExchangeDir(dir)), health.Cluster), forged); err != nil {
		t.Fatal(err)
	}
	parts, err := readParts(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	if limits := limitsReport(parts); weightsOf(limits, Filter{}) != nil || budgetsOf(limits, Filter{}) != nil {
		t.Error("weights and budgets are those of the cluster part")
	}
	for _, p := range parts {
		if p.Part == health.Cluster && (p.Detail != "documents of 0 pods" || p.PolicyRejected != "" || p.Report.Weights != nil || p.Report.Budgets != nil) {
			t.Errorf("%q, %+v", p.Detail, p.Report)
		}
	}
}

// TestReadFiles verifies that a filter keeps the files that the pod owns or writes.
func TestReadFiles(t *testing.T) {
	of := func(pod string) repair.NamedCgroup {
		return repair.NamedCgroup{ContainerName: repair.ContainerName{Namespace: "prod", Pod: pod}}
	}
	dir := writeState(t, &repair.Report{At: time.Now(), Mode: repair.ModeRepair, Files: []repair.File{
		{Path: "/owned", Owner: of("db-0"), Writers: []repair.Writer{}},
		{Path: "/written", Owner: of("web-0"), Writers: []repair.Writer{{NamedCgroup: of("log-0")}, {NamedCgroup: of("db-0")}}},
		{Path: "/other", Owner: of("web-0"), Writers: []repair.Writer{{NamedCgroup: of("log-0")}}},
	}})
	for filter, want := range map[Filter][]string{
		{}:                                {"/owned", "/written", "/other"},
		{Namespace: "prod", Name: "db-0"}: {"/owned", "/written"},
		{Namespace: "test", Name: "db-0"}: nil,
	} {
		r, err := readFiles(dir, filter)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, f := range r.Files {
			got = append(got, f.Path)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%v: -want +got:\n%s", filter, d)
		}
	}
	if r, err := readFiles(t.TempDir(), Filter{Namespace: "prod", Name: "db-0"}); r != nil || err != nil {
		t.Errorf("without a report: %v, %v", r, err)
	}
}

func TestCount(t *testing.T) {
	for n, want := range map[int]string{0: "0 pods", 1: "1 pod", 2: "2 pods"} {
		if got := Count(n, "pod"); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
}

func TestPartString(t *testing.T) {
	for want, p := range map[string]Part{
		"limits: connected, mode enforce":                       {Part: health.Limits, State: health.Connected, Detail: "mode enforce"},
		"validator: not running":                                {Part: health.Validator, State: NotRunning},
		"writeback: repair, the new policy is rejected: line 3": {Part: health.Writeback, State: repair.ModeRepair, PolicyRejected: "line 3"},
	} {
		if got := p.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
