package node

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy"
)

// TestEditBudgetRestart verifies that a restart of the plugin does not grant an edit for which the budget has no room.
func TestEditBudgetRestart(t *testing.T) {
	b := newBudgetNode(t, tenantBudget)
	one, two := tenant("1", "rootfs wbps=50Mi"), tenant("2", "rootfs wbps=50Mi")
	c1, c2 := member(one, "a"), member(two, "a")
	b.run(one, c1)
	b.run(two, c2)
	c1.State, c2.State = Running, Running
	for _, value := range []string{"rootfs wbps=190Mi", "rbps=1Mi", "rootfs rbps=1Mi"} {
		b.restart(tenantBudget)
		b.SetLive("u1", &Live{Namespace: "tenant-a", Name: "1", Annotations: annotationsOf(limitsKey+"containers", value)})
		b.Synchronize([]*Sandbox{one, two}, []*Container{c1, c2})
		b.pass(t.Context())
		d := b.peek().pods["sb-1"].containers["sb-1-a"].decision.desired
		if got := d.Settings.DevLimits()[rootDisk.Dev][blkio.Wbps]; got != 50*mi {
			t.Errorf("%s: %v, want 50 Mi", value, got)
		}
	}
}

// TestCreateMeetsEdit verifies that the budget of the namespace vets a new container by annotations or labels that begin to
// count while it is decided by those before.
func TestCreateMeetsEdit(t *testing.T) {
	pol := strings.Replace(tenantBudget, "200Mi", "70Mi", 1) + `rules:
- {name: gold, match: {podSelector: {matchLabels: {tier: gold}}}, class: silver}
- {name: others, class: bronze}
`
	for name, live := range map[string]*Live{
		"annotations": {Annotations: annotationsOf(limitsKey+"containers", "* wbps=40Mi")},
		"labels":      {Labels: map[string]string{"tier": "gold"}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBudgetNode(t, pol)
			sb := tenant("1", "")
			live.Namespace, live.Name = sb.Namespace, sb.Name
			b.run(sb, member(sb, "a"))
			once := true
			b.storage = disks{func(path string) blkio.Backing {
				if once {
					once = false
					b.SetLive(sb.UID, live)
					b.pass(t.Context())
				}
				return twoDisks(path)
			}}
			if err := b.createOf(sb, member(sb, "b")); err == nil || !strings.Contains(err.Error(), "exceeds the budget") {
				t.Errorf("the new container: %v", err)
			}
			if once {
				t.Fatal("there was no edit meanwhile")
			}
			b.pass(t.Context())
			b.wantGranted(name, "tenant-a vda wbps 40Mi of 70Mi, 1 pods")
		})
	}
}

// TestEditBetweenContainers verifies that an invalid edit changes nothing while no container of the pod runs, as between two
// containers of a pod that crashes, whether the plugin restarts then or not, and that a valid one counts.
func TestEditBetweenContainers(t *testing.T) {
	const invalid = "rootfs wpbs=4Mi"
	for _, restarts := range []bool{false, true} {
		for _, pol := range []*policy.Policy{policy.Default(), rules(t, "onError: {invalid: ignore}\n")} {
			l := newLiveNode(t)
			l.restart(pol)
			l.Synchronize(nil, nil)
			sb := sandbox(annotationsOf(limitsKey+"containers", "rootfs wbps=2Mi"))
			l.run(sb, "a")
			l.edit(limitsKey+"containers", "rootfs wbps=4Mi")
			if restarts {
				l.edit(limitsKey+"containers", invalid)
			}
			l.Stopped("sb1", "id-a")
			l.Removed("sb1", "id-a")
			if restarts {
				l.restart(pol)
				l.SetLive("u1", &Live{Namespace: "prod", Name: "db-0", Annotations: annotationsOf(limitsKey+"containers", invalid)})
				l.Synchronize([]*Sandbox{sb}, nil)
				l.pass(t.Context())
			} else {
				l.edit(limitsKey+"containers", invalid)
			}
			l.run(sb, "b")
			l.want("invalid", map[string]blkio.Amount{cgroupOf("b"): 4 * mi})
			l.Stopped("sb1", "id-b")
			l.Removed("sb1", "id-b")
			l.edit(limitsKey+"containers", "rootfs wbps=5Mi")
			l.run(sb, "a")
			l.pass(t.Context()) // the edit has waited for a container
			l.want("valid", map[string]blkio.Amount{cgroupOf("a"): 5 * mi})
		}
	}
}

// TestEditMeetsReload verifies that an edit that asks for no more of the budget than before is not rejected because a new policy,
// which grants more, has not decided the containers yet.
func TestEditMeetsReload(t *testing.T) {
	const class = "rules: [{name: all, class: %s, annotations: ignore}]\n"
	b := newBudgetNode(t, tenantBudget+fmt.Sprintf(class, "bronze"))
	sb := tenant("1", "")
	b.run(sb, member(sb, "a"))
	b.Reload(rules(t, strings.Replace(tenantBudget, "200Mi", "30Mi", 1)+fmt.Sprintf(class, "silver")))
	b.SetLive(sb.UID, &Live{Namespace: sb.Namespace, Name: sb.Name, Annotations: annotationsOf(limitsKey+"containers", "rootfs wbps=1Mi")})
	b.pass(t.Context())
	if got := scrape(t, b.Node)["live_changes_total{rejected}"]; got != 0 {
		t.Errorf("%v edits were rejected, and the policy ignores annotations", got)
	}
}

// TestEditBeforeSandbox verifies that a pod-total that an edit has removed does not bound what the next sandbox of the pod is granted
// of the budget.
func TestEditBeforeSandbox(t *testing.T) {
	b := newBudgetNode(t, tenantBudget)
	sb := tenant("1", "* wbps=40Mi")
	sb.Annotations[limitsKey+"pod-total"] = "* wbps=10Mi"
	b.run(sb, member(sb, "a"))
	b.Stopped(sb.ID, member(sb, "a").ID)
	next := *sb
	next.ID, next.Annotations = "sb-1-next", annotationsOf(limitsKey+"containers", "* wbps=40Mi")
	c := member(&next, "a")
	b.run(&next, c)
	b.pass(t.Context())
	b.wantGranted("next sandbox", "tenant-a vda wbps 40Mi of 200Mi, 1 pods")
}

// TestRestartBetweenSandboxes verifies that the edit of a pod's next sandbox survives a restart of the plugin that comes before
// the sandbox has a container, while one of the sandbox before still runs.
func TestRestartBetweenSandboxes(t *testing.T) {
	l := newLiveNode(t)
	sb := sandbox(annotationsOf(limitsKey+"containers", "rootfs wbps=2Mi"))
	l.run(sb, "a")
	next := sandbox(annotationsOf(limitsKey+"containers", "rootfs wbps=6Mi"))
	next.ID = "sb2"
	l.Synchronize([]*Sandbox{sb, next}, []*Container{listed("a", isRunning)})
	l.edit(limitsKey+"containers", "rootfs wbps=7Mi")
	l.restart(policy.Default())
	l.Synchronize([]*Sandbox{sb, next}, []*Container{listed("a", isRunning)})
	l.edit(limitsKey+"containers", "rootfs wbps=7Mi") // by the document, which is still there
	l.run(next, "b")
	l.pass(t.Context())
	l.want("next sandbox", map[string]blkio.Amount{cgroupOf("b"): 7 * mi})
}

// TestLongEditRestart verifies that a restarted plugin decides by the edit that counted last if it is as long as a document
// can have, and the pod has many containers, whose records are on the same directory.
func TestLongEditRestart(t *testing.T) {
	l := newLiveNode(t)
	sb := sandbox(annotationsOf(limitsKey+"containers", "rootfs wbps=2Mi"))
	var names []string
	want := map[string]blkio.Amount{}
	for i := range 12 {
		name := fmt.Sprint("c", i)
		l.k.make(cgroupOf(name), true)
		names, want[cgroupOf(name)] = append(names, name), 4*mi
	}
	l.run(sb, names...)
	l.edit(limitsKey+"containers", "rootfs wbps=4Mi"+strings.Repeat(" ", 27<<10))
	l.want("edited", want)
	l.restart(policy.Default())
	l.list(sb, names...)
	l.want("restarted", want)
}

// TestEditHangs verifies that an edit does not wait for a container whose disk does not answer: all pods wait for the pass.
func TestEditHangs(t *testing.T) {
	l := newLiveNode(t)
	sb := sandbox(annotationsOf(limitsKey+"containers", "rootfs wbps=2Mi"))
	l.run(sb, "a", "b")
	c := l.peek().pods["sb1"].containers["id-a"]
	c.token <- struct{}{}
	c.search.began = time.Now().Add(-2 * passDeadline)
	l.SetLive("u1", &Live{Namespace: "prod", Name: "db-0", Annotations: annotationsOf(limitsKey+"containers", "rootfs wbps=4Mi")})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := errors.Join(l.resolveAll(ctx, c.pod.group)...); err == nil || !strings.Contains(err.Error(), "does not answer") || ctx.Err() != nil {
		t.Errorf("got %v, %v", err, ctx.Err())
	}
	l.want("not tried", map[string]blkio.Amount{cgroupOf("b"): 2 * mi})
	l.pods.endSearch(c.identity)
	l.pass(t.Context())
	l.want("tried", all(4*mi, 4*mi))
}
