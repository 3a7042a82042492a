package node

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/podfacts"
	"github.com/nri-blkio/nri-blkio/policy"
)

// TestEditMeetsReload verifies that an edit that asks for no more of the budget than before is not rejected because a new policy,
// which grants more, has not decided the containers yet.
func TestEditMeetsReload(t *testing.T) {
	const class = "rules: [{name: all, class: %s, annotations: ignore}]\n"
	b := newBudgetNode(t, tenantBudget+fmt.Sprintf(class, "bronze"))
	sb := tenant("1", "")
	b.run(sb, member(sb, "a"))
	b.Reload(rules(t, strings.Replace(tenantBudget, "200Mi", "30Mi", 1)+fmt.Sprintf(class, "silver")))
	b.SetLive(sb.UID, &podfacts.Facts{Namespace: sb.Namespace, Name: sb.Name, Annotations: annotationsOf(limitsKey+"containers", "rootfs wbps=1Mi")})
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

// interrupted is a Storage that calls something during a search for disks.
type interrupted struct {
	Storage
	during *func()
}

func (s interrupted) Refresh(ctx context.Context) error {
	if f := *s.during; f != nil {
		*s.during = nil
		f()
	}
	return s.Storage.Refresh(ctx)
}

// TestEditMeetsStart verifies that a container that starts gets the limits of an edit that begins to count while its disks are searched
// for.
func TestEditMeetsStart(t *testing.T) {
	h, dir := tree(t, podCgroup, cgroupOf("x"))
	n := newNode(t, h)
	var during func()
	n.storage = interrupted{n.storage, &during}
	sb := sandbox(annotationsOf(limitsKey+"containers", "/data wbps=1Mi"))
	x := ctr("x", bind("/mnt/data/x", "/data", "rbind", "rslave"), bind("/mnt/data/y", "/other"))
	if _, err := n.create(t.Context(), sb, x, false); err != nil {
		t.Fatal(err)
	}
	during = func() {
		n.SetLive(sb.UID, &podfacts.Facts{Namespace: sb.Namespace, Name: sb.Name, Annotations: annotationsOf(limitsKey+"containers", "/data wbps=1Mi; /other riops=100")})
		n.reconcileGroup(t.Context(), n.peek().pods[sb.ID].group)
		if n.peek().pods[sb.ID].edit.next != nil {
			t.Error("the edit does not count")
		}
	}
	if err := n.start(t.Context(), sb, x, true); err != nil {
		t.Error("start:", err)
	}
	if got := read(t, filepath.Join(dir, cgroupOf("x"), "io.max")); got != "254:16 wbps=1048576 riops=100" {
		t.Errorf("io.max is %q", got)
	}
}
