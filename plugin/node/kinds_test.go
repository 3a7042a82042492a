package node

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy"
)

// kindRules gives the class bronze, but none to init containers, and silver to ephemeral containers.
const kindRules = "rules: [{name: r, class: bronze, containerClasses: {init: none, ephemeral: silver}}]\n"

// ofKinds has the plugin know the kinds of the pod's containers; nil if they are unknown.
func (l *liveNode) ofKinds(kinds policy.ContainerKinds) {
	l.SetLive("u1", &Live{Namespace: "prod", Name: "db-0", Kinds: kinds})
	l.pass(l.t.Context())
}

// TestKindsAreLate verifies that a container has the class of the rule until its kind is known, and then that of its kind, and that
// unknown kinds change nothing.
func TestKindsAreLate(t *testing.T) {
	for name, tt := range map[string]struct {
		policy    string
		kind      policy.ContainerKind
		early     blkio.Amount // in MiB/s, of container a
		late      blkio.Amount
		isApplied bool
	}{
		"none":          {kindRules, policy.InitContainer, 20, 0, true},
		"higher":        {kindRules, policy.EphemeralContainer, 20, 40, true},
		"another kind":  {kindRules, policy.SidecarContainer, 20, 20, false},
		"a bystander":   {strings.Replace(kindRules, "class: bronze, ", "", 1), policy.EphemeralContainer, 0, 40, true},
		"other rules":   {"rules: [{name: r, class: bronze}]\n", policy.InitContainer, 20, 20, false},
		"within budget": {"budgets: [{namespaces: [prod], limits: [\"* wbps=60Mi\"]}]\n" + kindRules, policy.EphemeralContainer, 20, 40, true},
		"above budget":  {"budgets: [{namespaces: [prod], limits: [\"* wbps=50Mi\"]}]\n" + kindRules, policy.EphemeralContainer, 20, 20, false},
		"needs a limit": {"budgets: [{namespaces: [prod], limits: [\"* wbps=50Mi\"]}]\n" + kindRules, policy.InitContainer, 20, 20, false},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLiveNode(t)
			l.Reload(rules(t, tt.policy))
			if name == "a bystander" {
				l.list(sandbox(nil), "a", "b")
			} else {
				l.run(sandbox(nil), "a", "b")
			}
			l.pass(t.Context())
			l.want("unknown", all(tt.early*mi, tt.early*mi))
			kinds := policy.ContainerKinds{"a": tt.kind}
			l.ofKinds(kinds)
			want := map[string]blkio.Amount{cgroupOf("a"): tt.late * mi, cgroupOf("b"): tt.early * mi}
			l.want("known", want)
			if n := countLogged(l.logged, "Applying the class of its kind to a running container"); (n == 1) != tt.isApplied || n > 1 {
				t.Errorf("%d messages", n)
			}
			l.ofKinds(nil)
			l.want("unknown again", want)
			l.restart(rules(t, tt.policy))
			l.writes = nil
			l.list(sandbox(nil), "a", "b")
			l.want("restarted without the document", want)
			if len(l.writes) > 0 {
				t.Errorf("the restart wrote %q", l.writes)
			}
			l.ofKinds(kinds)
			l.want("restarted with the document", want)
		})
	}
}

// TestKindsAreRejected verifies that the log and the state of a pod tell why a container does not have the class of its kind, and that
// neither counts it as an edit by the pod's author.
func TestKindsAreRejected(t *testing.T) {
	l := newLiveNode(t)
	l.Reload(rules(t, "budgets: [{namespaces: [prod], limits: [\"* wbps=50Mi\"]}]\n"+kindRules))
	l.run(sandbox(nil), "a", "b")
	l.SetLive("u1", &Live{Namespace: "prod", Name: "db-0", Claims: policy.NewClaims(nil)})
	l.pass(t.Context())
	l.SetLive("u1", &Live{Namespace: "prod", Name: "db-0", Claims: policy.NewClaims(nil), Kinds: policy.ContainerKinds{"a": policy.InitContainer}})
	l.pass(t.Context())
	p := l.peek().pods["sb1"]
	if err := p.edit.err; err == nil || !strings.HasPrefix(err.Error(), "the kinds of containers are known now, and the limits before stay in force: nri-blkio: ") || !strings.Contains(err.Error(), "needs a limit") {
		t.Errorf("the error is %v", err)
	}
	if n := countLogged(l.logged, "Rejected the classes of kinds of containers for a running pod"); n != 1 {
		t.Errorf("%d messages", n)
	}
	if got := scrape(t, l.Node)["live_changes_total{rejected}"]; got != 0 {
		t.Errorf("it counts as %v edits", got)
	}
}

// TestKindsOfNewContainers verifies that a container whose kind is known has its class from the start, also an ephemeral container
// that is added to a running pod while a claim of it does not count, and that the other containers keep their decisions.
func TestKindsOfNewContainers(t *testing.T) {
	l := newLiveNode(t)
	l.Reload(rules(t, "budgets: [{namespaces: [prod], limits: [\"* wbps=60Mi\"]}]\n"+strings.Replace(kindRules, "init: none", "init: silver", 1)))
	l.SetLive("u1", &Live{Namespace: "prod", Name: "db-0", Kinds: policy.ContainerKinds{"setup": policy.InitContainer}})
	l.run(sandbox(nil), "a")
	l.pass(t.Context())
	l.want("main", map[string]blkio.Amount{cgroupOf("a"): 20 * mi})
	l.SetLive("u1", &Live{Namespace: "prod", Name: "db-0", Kinds: policy.ContainerKinds{"setup": policy.InitContainer, "b": policy.EphemeralContainer}})
	if p := l.peek().pods["sb1"]; p.edit.next != nil {
		t.Error("the kind of a container that does not run waits for a pass")
	}
	l.run(sandbox(nil), "b")
	l.want("created", map[string]blkio.Amount{cgroupOf("b"): 40 * mi})
	l.pass(t.Context())
	l.want("a pass later", map[string]blkio.Amount{cgroupOf("a"): 20 * mi, cgroupOf("b"): 40 * mi})
}

// TestKindsReload verifies that running containers follow a policy that begins to use the kinds, and one that uses them no more.
func TestKindsReload(t *testing.T) {
	l := newLiveNode(t)
	l.Reload(rules(t, "rules: [{name: r, class: bronze}]\n"))
	l.run(sandbox(nil), "a", "b")
	l.ofKinds(policy.ContainerKinds{"a": policy.InitContainer})
	for _, tt := range []struct {
		policy string
		want   blkio.Amount
		kinds  policy.ContainerKinds // in the record
	}{
		{"rules: [{name: r, class: bronze}]\n", 20, nil},
		{kindRules, 0, policy.ContainerKinds{"a": policy.InitContainer}},
		{"rules: [{name: r, class: bronze, containerClasses: {sidecar: none}}]\n", 20, policy.ContainerKinds{"a": policy.InitContainer}},
		{"rules: [{name: r, class: bronze, containerClasses: {sidecar: none}}]\n", 20, nil},
		{kindRules, 0, policy.ContainerKinds{"a": policy.InitContainer}},
	} {
		l.Reload(rules(t, tt.policy))
		l.pass(t.Context())
		l.want(tt.policy, map[string]blkio.Amount{cgroupOf("a"): tt.want * mi, cgroupOf("b"): 20 * mi})
		var got policy.ContainerKinds
		if r := recordOf(t, l.Node, podCgroup); r != nil && r.Edit != nil {
			got = r.Edit.ContainerKinds
		}
		if d := cmp.Diff(tt.kinds, got); d != "" {
			t.Errorf("%s: record -want +got:\n%s", tt.policy, d)
		}
	}
}

// newKindsOfSandboxes returns a node with a container a in the first of two sandboxes of a pod. The document with the kinds was
// there, and is lost.
func newKindsOfSandboxes(t *testing.T) (l *liveNode, first, second *Sandbox) {
	t.Helper()
	l = newLiveNode(t)
	l.Reload(rules(t, kindRules))
	first, second = sandbox(nil), sandbox(nil)
	second.ID = "sb2"
	l.list(first, "a")
	l.ofKinds(policy.ContainerKinds{"b": policy.EphemeralContainer})
	l.SetLive("u1", nil)
	return l, first, second
}

// TestKindsOfNewSandbox verifies that the kinds hold for a new sandbox of the pod, without its document, also over a restart.
func TestKindsOfNewSandbox(t *testing.T) {
	l, first, second := newKindsOfSandboxes(t)
	l.run(second, "b")
	l.pass(t.Context())
	l.want("a new sandbox", map[string]blkio.Amount{cgroupOf("a"): 20 * mi, cgroupOf("b"): 40 * mi})
	l.restart(rules(t, kindRules))
	l.listBoth(first, second)
	l.want("restarted", map[string]blkio.Amount{cgroupOf("a"): 20 * mi, cgroupOf("b"): 40 * mi})
}

// TestKindsOfRemovedSandbox verifies that a new sandbox has the kinds of the record if the one before was removed earlier.
func TestKindsOfRemovedSandbox(t *testing.T) {
	l, _, second := newKindsOfSandboxes(t)
	l.Stopped("sb1", "a")
	l.Removed("sb1", "a")
	l.RemovedPod("sb1")
	l.run(second, "b")
	l.pass(t.Context())
	l.want("a new sandbox", map[string]blkio.Amount{cgroupOf("b"): 40 * mi})
}
