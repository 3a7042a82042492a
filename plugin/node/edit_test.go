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

// TestEditMeetsCreate verifies that a container that was created while an edit was tried can still reject the edit.
func TestEditMeetsCreate(t *testing.T) {
	l := newLiveNode(t)
	sb := sandbox(annotationsOf(limitsKey+"containers", "rootfs wbps=2Mi"))
	l.run(sb, "a")
	once := true
	l.storage = disks{func(path string) blkio.Backing {
		if once {
			once = false
			l.run(sb, "b")
		}
		return twoDisks(path)
	}}
	l.SetLive("u1", &Live{Namespace: "prod", Name: "db-0", Annotations: annotationsOf(limitsKey+"containers", "/data wbps=4Mi; rootfs wbps=5Mi", limitsKey+"container.b", "/nowhere wbps=1Mi")})
	l.pass(t.Context())
	if once {
		t.Fatal("no container was created meanwhile")
	}
	l.pass(t.Context())
	l.want("rejected by the new one", all(2*mi, 2*mi))
	l.edit(limitsKey+"containers", "/data wbps=4Mi; rootfs wbps=5Mi")
	l.want("both", all(5*mi, 5*mi))
}

// TestFallBackMeetsReload verifies that an edit that the first container of its pod rejects is tried again, if a new policy rejects
// that container by the annotations of the runtime as well.
func TestFallBackMeetsReload(t *testing.T) {
	l := newLiveNode(t)
	l.Synchronize(nil, nil)
	lookups := 0
	l.storage = disks{func(path string) blkio.Backing {
		if strings.HasPrefix(path, "/mnt/data") {
			if lookups++; lookups == 2 { // by the annotations of the runtime
				l.policy.Store(rules(t, "floors: {bps: 3Mi}\n"))
			}
		}
		return twoDisks(path)
	}}
	l.SetLive("u1", &Live{Namespace: "prod", Name: "db-0", Annotations: annotationsOf(limitsKey+"container.a", "/data wbps=4Mi; /nowhere wbps=4Mi")})
	sb := sandbox(annotationsOf(limitsKey+"containers", "/data wbps=2Mi"))
	if _, err := l.create(t.Context(), sb, ctr("a", bind("/mnt/data/x", "/data")), false); err == nil || !strings.Contains(err.Error(), "floor") {
		t.Fatalf("%d lookups, %v", lookups, err)
	}
	if got := l.pods.edits(l.peek().pods["sb1"].group); len(got) != 1 {
		t.Errorf("%d edits are tried", len(got))
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
	c.resolution.began = time.Now().Add(-2 * passDeadline)
	l.SetLive("u1", &Live{Namespace: "prod", Name: "db-0", Annotations: annotationsOf(limitsKey+"containers", "rootfs wbps=4Mi")})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := errors.Join(l.resolveAll(ctx, c.pod.group)...); err == nil || !strings.Contains(err.Error(), "does not answer") || ctx.Err() != nil {
		t.Errorf("got %v, %v", err, ctx.Err())
	}
	l.want("not tried", map[string]blkio.Amount{cgroupOf("b"): 2 * mi})
	l.pods.endResolution(c.identity)
	l.pass(t.Context())
	l.want("tried", all(4*mi, 4*mi))
}
