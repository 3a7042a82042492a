package node

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nri-blkio/nri-blkio/blkio"
)

const (
	paying = "rules: [{name: paying, match: {namespaceSelector: {matchLabels: {plan: gold}}}, class: silver}, {name: others, class: bronze}]\n"
	unpaid = "rules: [{name: trial, match: {namespaceSelector: {matchExpressions: [{key: plan, operator: NotIn, values: [gold]}]}}, class: bronze}]\n"
)

// inNamespace has the plugin know the labels of the pod's namespace.
func (l *liveNode) inNamespace(labels map[string]string) {
	l.SetLive("u1", &Live{Namespace: "prod", Name: "db-0", NamespaceLabels: labels})
	l.pass(l.t.Context())
}

// TestNamespaceLabelsChange verifies that running pods follow the labels of their namespace, with annotations and without, in a
// namespace with a budget as well, and that unknown labels change nothing.
func TestNamespaceLabelsChange(t *testing.T) {
	gold, tin := map[string]string{"plan": "gold"}, map[string]string{"plan": "tin"}
	for name, tt := range map[string]struct {
		policy                   string
		annotations              map[string]string
		unknown, matched, others blkio.Amount // in MiB/s
	}{
		"another class":      {paying, nil, 20, 40, 20},
		"an unlimited pod":   {unpaid, nil, 0, 0, 20},
		"beside annotations": {paying, annotationsOf(limitsKey+"container.a", "rootfs riops=100"), 20, 40, 20},
		"above the budget":   {"budgets: [{namespaces: [prod], limits: [\"* wbps=50Mi\"]}]\n" + paying, nil, 20, 40, 20},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLiveNode(t)
			l.Reload(rules(t, tt.policy))
			sb := sandbox(tt.annotations)
			l.run(sb, "a", "b")
			l.pass(t.Context())
			l.want("unknown", all(tt.unknown*mi, tt.unknown*mi))
			l.inNamespace(gold)
			l.want("gold", all(tt.matched*mi, tt.matched*mi))
			l.inNamespace(nil)
			l.want("unknown again", all(tt.matched*mi, tt.matched*mi))
			l.inNamespace(tin)
			l.want("tin", all(tt.others*mi, tt.others*mi))
			l.inNamespace(gold)
			l.want("gold again", all(tt.matched*mi, tt.matched*mi))
		})
	}
}

// TestNamespaceLabelsRestart verifies that a restarted plugin decides by those labels of the namespace that counted last, also without
// the document of the pod, and that a new rule does not match by others that it does not know.
func TestNamespaceLabelsRestart(t *testing.T) {
	l := newLiveNode(t)
	l.Reload(rules(t, paying))
	sb := sandbox(nil)
	l.run(sb, "a", "b")
	l.inNamespace(map[string]string{"plan": "gold", "team": "a"})
	restart := func(policy string) {
		l.restart(rules(t, policy))
		l.writes = nil
		l.list(sb, "a", "b")
		l.pass(t.Context())
	}
	restart(paying)
	l.want("restarted", all(40*mi, 40*mi))
	if len(l.writes) > 0 {
		t.Errorf("the restart wrote %q", l.writes)
	}
	restart(strings.Replace(paying, "silver", "bronze", 1))
	l.want("another class", all(20*mi, 20*mi))
	// The namespace has the label team, which the record does not have.
	restart(strings.Replace(paying, "[{", "[{name: early, match: {namespaceSelector: {matchExpressions: [{key: team, operator: DoesNotExist}]}}, class: none}, {", 1))
	l.want("a rule by another label", all(40*mi, 40*mi))
	restart(paying)
	l.want("the first policy again", all(40*mi, 40*mi))
	l.inNamespace(map[string]string{"plan": "tin"})
	restart(paying)
	l.want("other labels", all(20*mi, 20*mi))
}

// listBoth is the list of the runtime after a restart, with a container in each of two sandboxes of the pod.
func (l *liveNode) listBoth(first, second *Sandbox) {
	l.t.Helper()
	of := func(sb *Sandbox, name string) *Container {
		c := listed(name, isRunning)
		c.Sandbox, c.Spec = sb.ID, specOf(name, bind("/mnt/data/x", "/data"))
		return c
	}
	l.Synchronize([]*Sandbox{first, second}, []*Container{of(first, "a"), of(second, "b")})
	l.pass(l.t.Context())
}

// TestNamespaceLabelsOfNewSandbox verifies that the labels of the namespace hold for a new sandbox of the pod, without its document, also
// over a restart. The runtime does not report them.
func TestNamespaceLabelsOfNewSandbox(t *testing.T) {
	l := newLiveNode(t)
	l.Reload(rules(t, paying))
	first, second := sandbox(nil), sandbox(nil)
	second.ID = "sb2"
	l.run(first, "a")
	l.inNamespace(map[string]string{"plan": "gold"})
	l.SetLive("u1", nil)
	l.run(second, "b")
	l.pass(t.Context())
	l.want("a new sandbox", map[string]blkio.Amount{cgroupOf("a"): 40 * mi, cgroupOf("b"): 40 * mi})
	l.restart(rules(t, paying))
	l.listBoth(first, second)
	l.want("restarted", map[string]blkio.Amount{cgroupOf("a"): 40 * mi, cgroupOf("b"): 40 * mi})
}

// TestNamespaceLabelsOfRemovedSandbox verifies that a new sandbox has the labels of the record if the one before was removed earlier.
func TestNamespaceLabelsOfRemovedSandbox(t *testing.T) {
	l := newLiveNode(t)
	l.Reload(rules(t, paying))
	first, second := sandbox(annotationsOf(limitsKey+"container.a", "rootfs riops=100")), sandbox(annotationsOf(limitsKey+"container.a", "rootfs riops=100"))
	second.ID = "sb2"
	l.list(first, "a")
	l.inNamespace(map[string]string{"plan": "gold"})
	l.SetLive("u1", nil)
	l.Stopped("sb1", "a")
	l.Removed("sb1", "a")
	l.RemovedPod("sb1")
	l.run(second, "b")
	l.pass(t.Context())
	l.want("a new sandbox", map[string]blkio.Amount{cgroupOf("b"): 40 * mi})
}

// TestNamespaceAlone verifies that a document that has nothing but the labels of the namespace changes neither annotations nor claims,
// and that an empty selector matches a pod whose namespace is known.
func TestNamespaceAlone(t *testing.T) {
	l := newLiveNode(t)
	l.Reload(rules(t, "rules: [{name: known, match: {namespaceSelector: {}}, class: silver}, {name: others, class: bronze}]\n"))
	l.run(sandbox(annotationsOf(limitsKey+"container.a", "rootfs wbps=2Mi")), "a", "b")
	l.want("unknown", all(2*mi, 20*mi))
	l.SetLive("u1", &Live{Namespace: "prod", Name: "db-0", NamespaceLabels: map[string]string{"kubernetes.io/metadata.name": "prod"}, OnlyNamespace: true})
	l.pass(t.Context())
	l.want("known", all(2*mi, 40*mi))
	l.edit(limitsKey+"container.a", "rootfs wbps=3Mi")
	l.want("edited", all(3*mi, 40*mi))
	l.SetLive("u1", &Live{Namespace: "prod", Name: "db-0", NamespaceLabels: map[string]string{"kubernetes.io/metadata.name": "prod"}, OnlyNamespace: true})
	l.pass(t.Context())
	l.want("read again", all(3*mi, 40*mi))
}

// TestNamespaceIsNotPaced verifies that edits of a pod in quick succession do not delay the labels of its namespace.
func TestNamespaceIsNotPaced(t *testing.T) {
	l := newLiveNode(t)
	l.Reload(rules(t, paying))
	l.run(sandbox(annotationsOf(limitsKey+"container.a", "rootfs wbps=1Mi")), "a", "b")
	live := func(i int, plan string) {
		l.SetLive("u1", &Live{
			Namespace: "prod", Name: "db-0", NamespaceLabels: map[string]string{"plan": plan},
			Annotations: annotationsOf(limitsKey+"container.a", fmt.Sprintf("rootfs wbps=%dMi", 2+i)),
		})
		l.pass(t.Context())
	}
	for i := range 20 {
		live(i, "gold")
	}
	l.want("gold", map[string]blkio.Amount{cgroupOf("b"): 40 * mi})
	live(20, "tin")
	l.want("tin", map[string]blkio.Amount{cgroupOf("b"): 20 * mi})
}

// TestEditMeetsNamespace verifies that an edit that counts later does not bring back the labels that the namespace had before,
// and that the log names a container that follows new ones.
func TestEditMeetsNamespace(t *testing.T) {
	l := newLiveNode(t)
	l.Reload(rules(t, paying))
	l.run(sandbox(annotationsOf(limitsKey+"container.a", "rootfs wbps=1Mi")), "a", "b")
	live := func(plan, tier string) *Live {
		return &Live{
			Namespace: "prod", Name: "db-0", NamespaceLabels: map[string]string{"plan": plan}, Labels: map[string]string{"tier": tier},
			Annotations: annotationsOf(limitsKey+"container.a", "rootfs wpbs=1Mi"), // invalid
		}
	}
	for i := range changesAtOnce - 1 {
		l.SetLive("u1", live("tin", fmt.Sprint(i)))
		l.pass(t.Context())
	}
	l.SetLive("u1", live("tin", "last"))
	if p := l.peek().pods["sb1"]; p.edit.next == nil {
		t.Fatal("no edit waits for the next pass")
	}
	l.SetLive("u1", live("gold", "delayed"))
	l.pass(t.Context())
	l.want("gold", map[string]blkio.Amount{cgroupOf("b"): 40 * mi})
	if n := countLogged(l.logged, "A running container follows changed labels of its namespace"); n != 2 {
		t.Errorf("%d messages about changed labels of the namespace, want one for each container", n)
	}
}

// TestNamespaceLabelsReload verifies that running pods follow a new policy that selects by other labels, and that labels that are
// too large for a document stay as they were.
func TestNamespaceLabelsReload(t *testing.T) {
	l := newLiveNode(t)
	l.Reload(rules(t, inProd))
	l.run(sandbox(nil), "a", "b")
	l.inNamespace(map[string]string{"plan": "gold"})
	l.inNamespace(nil)
	l.want("no selector", all(0, 0))
	l.Reload(rules(t, paying))
	l.pass(t.Context())
	l.want("a selector", all(40*mi, 40*mi))
	former := l.peek().pods["sb1"].request.now.Load()
	l.inNamespace(map[string]string{"plan": "gold", "unrelated": "x"})
	if l.peek().pods["sb1"].request.now.Load() != former {
		t.Error("a label by which no rule selects makes a new request")
	}
}
