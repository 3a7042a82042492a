package node

import (
	"strings"
	"testing"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/record"
)

// TestLabelsBudget verifies that changed labels cannot take more than the budget of the namespace has, nor by a restart of the
// plugin.
func TestLabelsBudget(t *testing.T) {
	const pol = tenantBudget + `rules:
- {name: batch, match: {podSelector: {matchLabels: {tier: batch}}}, class: bronze}
- {name: gold, match: {podSelector: {matchLabels: {tier: gold}}}, class: silver}
`
	b := newBudgetNode(t, pol)
	var sandboxes []*Sandbox
	var containers []*Container
	for _, name := range []string{"1", "2", "3", "4", "5", "6", "7"} {
		sb := tenant(name, "")
		sb.Labels = map[string]string{"tier": "batch"}
		c := member(sb, "a")
		b.run(sb, c)
		c.State = Running
		sandboxes, containers = append(sandboxes, sb), append(containers, c)
	}
	label := func(tier string) {
		for _, sb := range sandboxes {
			b.SetLive(sb.UID, &Live{Namespace: sb.Namespace, Name: sb.Name, Labels: map[string]string{"tier": tier}})
		}
	}
	want := func(when string) {
		t.Helper()
		b.pass(t.Context())
		if got := b.Budgets(); len(got) != 1 || got[0].Granted != 200*mi { // 20 Mi of four pods, 40 Mi of three
			t.Errorf("%s: %+v", when, got)
		}
	}
	label("gold")
	want("changed")
	rejected := 0
	for _, sb := range sandboxes {
		r, err := record.Read(b.tree.Cgroup(sliceOf(sb.Name)), record.KindPod)
		if err != nil {
			t.Fatal(err)
		}
		if r != nil && r.Error != "" {
			rejected++
			if !strings.HasPrefix(r.Error, "the labels were edited, and those before stay in force: ") {
				t.Errorf("%s: %s", sb.Name, r.Error)
			}
		}
	}
	if rejected != 4 {
		t.Errorf("%d pods have an error", rejected)
	}
	label("none")
	want("without a class")
	label("gold")
	b.restart(pol)
	label("gold")
	b.Synchronize(sandboxes, containers)
	want("restarted")
}

// TestDifferences verifies that an error names what was edited.
func TestDifferences(t *testing.T) {
	former := newRequest(FactsOf("prod", map[string]string{"tier": "a"}, "", ""), annotationsOf(limitsKey+"containers", "x"))
	long := newRequest(former.facts, annotationsOf(limitsKey+"containers", strings.Repeat("x", 40<<10)))
	other, labels, claims := annotationsOf(limitsKey+"containers", "y"), map[string]string{"tier": "b"}, claimsOf("wbps=1Mi")
	for _, tt := range []struct {
		next, former *request
		want         string
	}{
		{former.with(other), former, "annotations"},
		{former.withLabels(labels), former, "labels"},
		{former.withLabels(labels).with(other), former, "annotations and labels"},
		{former.with(other).withLabels(labels), former, "annotations and labels"},
		{long.withLabels(labels), long, "labels"},
		{former.changed(former.facts.Labels, claims), former, "limits of a claim"},
		{long.changed(long.facts.Labels, claims), long, "limits of a claim"},
		{former.changed(labels, claims), former, "labels and limits of a claim"},
		{former.changed(former.facts.Labels, claims).with(other), former, "annotations and limits of a claim"},
		{long.with(other), long, "annotations"},
	} {
		if got := tt.next.differences(tt.former).String(); got != tt.want {
			t.Errorf("%q, want %q", got, tt.want)
		}
	}
}

// TestKeptByLabel verifies that a label by which no rule selects pods does not lift a limit that stays in force after the
// floors were raised.
func TestKeptByLabel(t *testing.T) {
	for name, pol := range map[string]string{"no budget": "", "budget": "budgets: [{namespaces: [prod], limits: ['* wbps=200Mi']}]\n"} {
		t.Run(name, func(t *testing.T) {
			const ignore = "onError: {invalid: ignore, unenforceable: ignore}\n"
			l := newLiveNode(t)
			l.policy.Store(rules(t, ignore+pol))
			l.run(sandbox(annotationsOf(limitsKey+"containers", "rootfs wbps=2Mi")), "a", "b")
			l.Reload(rules(t, ignore+pol+"floors: {bps: 3Mi}\n"))
			l.pass(t.Context())
			l.want("floor", map[string]blkio.Amount{cgroupOf("a"): 2 * mi, cgroupOf("b"): 2 * mi})
			l.SetLive("u1", &Live{Namespace: "prod", Name: "db-0", Labels: map[string]string{"x": "y"}, Annotations: annotationsOf(limitsKey+"containers", "rootfs wbps=2Mi")})
			l.pass(t.Context())
			l.want("label", map[string]blkio.Amount{cgroupOf("a"): 2 * mi, cgroupOf("b"): 2 * mi})
			if r := recordOf(t, l.Node, podCgroup); r != nil && strings.Contains(r.Error, "edited") {
				t.Errorf("no annotation was edited, and the record has %q", r.Error)
			}
		})
	}
}

// TestRuntimeLabels verifies that a label that CRI-O adds to each sandbox (sandbox_run_linux.go, "Add special container name
// label for the infra container") does not count as a change.
func TestRuntimeLabels(t *testing.T) {
	l := newLiveNode(t)
	l.policy.Store(rules(t, "onError: {invalid: ignore, unenforceable: ignore}\nbudgets: [{namespaces: [prod], limits: ['* wbps=200Mi']}]\n"))
	reported := annotationsOf(limitsKey+"containers", "rootfs wbps=2Mi", limitsKey+"container.c", "rootfs wpbs=1Mi")
	sb := sandbox(reported)
	sb.Labels = map[string]string{"tier": "web", "io.kubernetes.pod.name": "db-0", "io.kubernetes.container.name": "POD"}
	l.run(sb, "a", "b")
	l.SetLive("u1", &Live{Namespace: "prod", Name: "db-0", Labels: map[string]string{"tier": "web"}, Annotations: reported})
	l.pass(t.Context())
	if r := recordOf(t, l.Node, podCgroup); r != nil && r.Error != "" {
		t.Errorf("nothing was edited, and the record has %q", r.Error)
	}
	if got := scrape(t, l.Node); got["live_changes_total{applied}"]+got["live_changes_total{rejected}"] != 0 {
		t.Errorf("nothing was edited: %v applied, %v rejected", got["live_changes_total{applied}"], got["live_changes_total{rejected}"])
	}
}

// TestLabelsMeetReload verifies that labels do not count at once in a namespace that has a budget by the policy in force, although
// the containers are still decided by the former policy.
func TestLabelsMeetReload(t *testing.T) {
	const classes = `rules:
- {name: gold, match: {podSelector: {matchLabels: {tier: gold}}}, class: silver}
- {name: batch, match: {podSelector: {matchLabels: {tier: batch}}}, class: bronze}
`
	b := newBudgetNode(t, classes)
	sb := tenant("1", "")
	sb.Labels = map[string]string{"tier": "batch"}
	b.run(sb, member(sb, "a"))
	b.Reload(rules(t, strings.Replace(tenantBudget, "200Mi", "30Mi", 1)+classes))
	b.SetLive(sb.UID, &Live{Namespace: sb.Namespace, Name: sb.Name, Labels: map[string]string{"tier": "gold"}})
	b.pass(t.Context())
	if got := b.Budgets(); len(got) != 1 || got[0].Granted > 30*mi {
		t.Errorf("%+v", got)
	}
}
