package node

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/handover"
	"github.com/nri-blkio/nri-blkio/policy"
)

// scrape returns the values of all series, `name{value of the label}`, without
// the common prefix; of a histogram the number of observations.
func scrape(t *testing.T, n *Node) map[string]float64 {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	if err := r.Register(n); err != nil {
		t.Fatal(err)
	}
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := strings.TrimPrefix(f.GetName(), "nri_blkio_")
			for _, l := range m.GetLabel() {
				name += "{" + l.GetValue() + "}"
			}
			out[name] = m.GetGauge().GetValue() + m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return out
}

// wantMetrics compares the series that are not 0.
func wantMetrics(t *testing.T, n *Node, want map[string]float64) {
	t.Helper()
	got := scrape(t, n)
	maps.DeleteFunc(got, func(_ string, v float64) bool { return v == 0 })
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

// TestMetricsAtZero verifies that each series exists from the start. An alert cannot see a series grow that
// appears with its first event.
func TestMetricsAtZero(t *testing.T) {
	h, _ := tree(t)
	got := slices.Sorted(maps.Keys(scrape(t, newNode(t, h))))
	want := []string{
		"budget_refused_containers_total", "containers{failed}", "containers{limited}", "containers{observed}", "containers{unlimited}",
		"exit_watch", "exits_total{failed}", "exits_total{lifted}", "exits_total{lost}",
		"limits_written_total", "live_changes_total{applied}", "live_changes_total{rejected}", "namespaces_over_budget", "pods", "pods_not_in_force", "pods_with_foreign_limits", "pods_without_namespace_labels", "reconcile_seconds",
		"refused_containers_total{internal}", "refused_containers_total{invalid}", "refused_containers_total{unenforceable}",
		"syncs_total{failed}", "syncs_total{ok}", "unexpected_events_total",
		"warnings{annotations_ignored}", "warnings{claim_not_enforced}", "warnings{class_not_enforced}", "warnings{guarded}", "warnings{no_cgroup_writeback}", "warnings{no_memory_limit}", "warnings{other}", "warnings{stalls_fsync}",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

// vfatNode is a node where the volumes in /mnt/data/vfat have no cgroup writeback.
func vfatNode(t *testing.T, p *policy.Policy) *Node {
	t.Helper()
	h, _ := tree(t, podCgroup, cgroupOf("a"), cgroupOf("b"), cgroupOf("c"))
	n := newNode(t, h)
	n.storage = disks{func(path string) blkio.Backing {
		b := twoDisks(path)
		if strings.HasPrefix(path, "/mnt/data/vfat") {
			b.Warning = &blkio.Warning{Kind: blkio.NoCgroupWriteback}
		}
		return b
	}}
	n.Reload(p)
	return n
}

func TestMetrics(t *testing.T) {
	pol := *policy.Default()
	pol.OnError.Unenforceable = policy.Ignore
	n := vfatNode(t, &pol)
	s := &session{n, time.Second}
	sb := sandbox(map[string]string{
		limitsKey + "container.a":   "rootfs rbps=1Mi; /v wbps=1Mi; /w wbps=1Mi",
		limitsKey + "container.c":   "/mem wbps=1Mi",
		limitsKey + "container.bad": "wbps",
	})
	a := ctr("a", bind("/mnt/data/vfat/1", "/v"), bind("/mnt/data/vfat/2", "/w"))
	if _, err := s.CreateContainer(t.Context(), sb, a); err != nil {
		t.Fatal(err)
	}
	want := map[string]float64{"pods": 1}
	wantMetrics(t, n, want) // it does not run yet

	for range 2 {
		if _, err := s.CreateContainer(t.Context(), sb, ctr("bad")); err == nil {
			t.Error("not refused")
		}
	}
	for _, c := range []string{"b", "c"} {
		if err := s.StartContainer(t.Context(), sb, ctr(c, bind("/mnt/mem", "/mem"))); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.StartContainer(t.Context(), sb, a); err != nil {
		t.Fatal(err)
	}
	n.pass(t.Context())
	want = map[string]float64{
		"pods": 1, "containers{limited}": 1, "containers{unlimited}": 1, "containers{failed}": 1,
		"warnings{no_cgroup_writeback}": 1, "warnings{no_memory_limit}": 1,
		"refused_containers_total{invalid}": 2,
		"reconcile_seconds":                 1,
	}
	got := scrape(t, n)
	// The files of the tree are not io.max: the pass writes again.
	if got["limits_written_total"] < 2 {
		t.Errorf("%v lines written, want at least the two disks of a", got["limits_written_total"])
	}
	want["limits_written_total"] = got["limits_written_total"]
	wantMetrics(t, n, want)

	n.noteProblem(t.Context(), n.peek().pods["sb1"].group, errors.New("no")) // reconcileGroup does this with a failure
	observe := pol
	observe.Mode = policy.ModeObserve
	n.Reload(&observe)
	if err := errors.Join(n.resolveAll(t.Context(), n.peek().pods["sb1"].group)...); err != nil {
		t.Fatal(err)
	}
	got = scrape(t, n)
	if got["pods_not_in_force"] != 1 || got["containers{limited}"] != 0 || got["containers{observed}"] != 1 || got["containers{unlimited}"] != 1 || got["containers{failed}"] != 1 {
		t.Errorf("observed, with a complaint: %v", got)
	}
}

// TestMetricsOfExits verifies that the results of lifts and syncs have a series each.
func TestMetricsOfExits(t *testing.T) {
	h, _ := tree(t, podCgroup)
	n := newNode(t, h)
	n.exits.ends.Won.Add(2)
	n.exits.ends.Lost.Add(1)
	n.exits.ends.Failed.Add(1)
	ended := make(chan struct{}, 1)
	n.exits.writeout.Tidy = func(context.Context, handover.Pod) { ended <- struct{}{} }
	for _, want := range []error{errors.New("no"), nil} {
		n.exits.writeout.Syncs.Sync = func(context.Context, string) error { return want }
		at := handover.Volume{Path: fmt.Sprint("/mnt/", want)} // a second sync of one volume would wait until the filesystem has rested
		n.exits.writeout.Write(t.Context(), endedPod{n, newGroup("", "").groupIdentity}, "", handover.Unsynced{Volumes: []handover.Volume{at}})
		<-ended
	}
	wantMetrics(t, n, map[string]float64{
		"exits_total{lifted}": 2, "exits_total{lost}": 1, "exits_total{failed}": 1,
		"syncs_total{ok}": 1, "syncs_total{failed}": 1,
	})
}

// TestScrapeBesideEvents lets the race detector check a scrape, also while a call hangs in the kernel.
func TestScrapeBesideEvents(t *testing.T) {
	h, _ := tree(t, podCgroup, cgroupOf("a"))
	n := newNode(t, h)
	sb := sandbox(map[string]string{limitsKey + "containers": "rootfs wbps=1Mi"})
	start(t, n, sb, "a")
	n.peek().pods["sb1"].group.token <- struct{}{} // a write that hangs
	if got := scrape(t, n)["containers{limited}"]; got != 1 {
		t.Errorf("%v limited containers, want 1", got)
	}
	<-n.peek().pods["sb1"].group.token

	ctx, cancel := context.WithCancel(t.Context())
	var scrapes sync.WaitGroup
	scrapes.Go(func() {
		for ctx.Err() == nil {
			scrape(t, n)
		}
	})
	for range 50 {
		start(t, n, sb, "a")
		n.pass(t.Context())
		n.Stopped("sb1", "id-a")
		n.Removed("sb1", "id-a")
		n.RemovedPod("sb1")
	}
	cancel()
	scrapes.Wait()
}
