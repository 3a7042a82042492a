package node

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/sirupsen/logrus/hooks/test"

	"github.com/nri-blkio/nri-blkio/plugin/podevent"
	"github.com/nri-blkio/nri-blkio/plugin/podfacts"
	"github.com/nri-blkio/nri-blkio/policy"
)

// TestNoticeAfterAnswer verifies that nothing is told about a container that may be refused before the answer to its start, and then
// only what was not told at its creation.
func TestNoticeAfterAnswer(t *testing.T) {
	for _, isCreated := range []bool{false, true} {
		h, _ := tree(t, podCgroup, cgroupOf("a"))
		n, sb, want := newNode(t, h), limited("rootfs wbps=1Mi; rootfs wpbs=1Mi"), 0
		n.Reload(rules(t, "onError: {invalid: ignore}\n"))
		log, lines := test.NewNullLogger()
		n.log = log
		if isCreated {
			want = 1
			if _, err := n.create(t.Context(), sb, ctr("a"), false); err != nil {
				t.Fatal(err)
			}
		}
		c := n.findOrRegister(n.lookup(sb), ctr("a"))
		if err := n.resolve(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if n.tell(c.pod.group); len(lines.AllEntries()) != want {
				t.Errorf("created %t: %d lines, want %d", isCreated, len(lines.AllEntries()), want)
			}
			n.noteStarted(c)
			want = 1
		}
	}
}

// TestEventManyClaims verifies that an event of many claims has room for the limits, and that it names claims beside other parts.
func TestEventManyClaims(t *testing.T) {
	e := editOf{claims: []string{"a", "b", "c", "d", "e"}}
	if got, want := e.applied(podfacts.Labels|podfacts.Volumes), "edited labels and limits of claims a, b, c and 2 more apply"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// BenchmarkTell measures what notices cost in a pass over a node with 250 pods of two containers, after all were told: without
// anything that is not in force, and with one cause for each container.
func BenchmarkTell(b *testing.B) {
	for name, value := range map[string]string{"none": "rootfs wbps=1Mi", "causes": "rootfs wbps=1Mi; rootfs wpbs=1Mi"} {
		n := newBudgetNode(b, "onError: {invalid: ignore}\n")
		for i := range benchPods {
			sb := tenant(fmt.Sprint(i), value)
			n.SetLive(sb.UID, &podfacts.Facts{Namespace: sb.Namespace, Name: sb.Name, Annotations: sb.Annotations, Volumes: []policy.Volume{}})
			n.run(sb, member(sb, "db"))
			n.run(sb, member(sb, "sidecar"))
		}
		groups := n.groups()
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				for _, g := range groups {
					n.tell(g)
				}
			}
		})
	}
}

// reasons keeps the reasons of events.
type reasons struct{ got []podevent.Reason }

func (r *reasons) Note(_ podevent.Pod, reason podevent.Reason, _ podevent.Key, _ string) {
	r.got = append(r.got, reason)
}

func (*reasons) Run(context.Context, func() map[string]bool) {}

// TestEventOfRefusedStart verifies that a start that was refused is no cause of limits that are not in force.
func TestEventOfRefusedStart(t *testing.T) {
	h, _ := tree(t, podCgroup, cgroupOf("a"))
	n, events := newNode(t, h), &reasons{}
	n.events = events
	sb := limited("/mem wbps=1Mi")
	n.SetLive("u1", &podfacts.Facts{Namespace: "prod", Name: "db-0", Annotations: sb.Annotations, Volumes: []policy.Volume{}}) // unknown volumes would be waited for
	if err := n.start(t.Context(), sb, ctr("a", bind("/mnt/mem/x", "/mem")), true); err == nil {
		t.Fatal("not refused")
	}
	n.pass(t.Context())
	if slices.Contains(events.got, podevent.NotInForce) {
		t.Errorf("events %q", events.got)
	}
}

// TestProblems verifies that a problem is listed from the time at which an event has told it until it ends, and that a fact about
// a decision is none.
func TestProblems(t *testing.T) {
	h, _ := tree(t, podCgroup, cgroupOf("a"), cgroupOf("b"))
	n, sb := newNode(t, h), limited("/mem wbps=1Mi")
	n.Reload(rules(t, "onError: {unenforceable: ignore}\n"))
	n.SetLive("u1", &podfacts.Facts{Namespace: "prod", Name: "db-0", Annotations: sb.Annotations, Volumes: []policy.Volume{}}) // unknown volumes would be waited for
	list := func(when string, want ...string) {
		t.Helper()
		var got []string
		for _, p := range n.Problems() {
			got = append(got, p.Namespace+"/"+p.Pod+" "+p.Reason+" "+p.Text)
		}
		if !slices.EqualFunc(got, want, strings.HasPrefix) {
			t.Errorf("%s: %q, want %q", when, got, want)
		}
	}
	if err := n.start(t.Context(), sb, ctr("b"), false); err != nil { // without a memory limit
		t.Fatal(err)
	}
	n.pass(t.Context())
	list("without a problem")
	if err := n.start(t.Context(), sb, ctr("a", bind("/mnt/mem/x", "/mem")), false); err != nil {
		t.Fatal(err)
	}
	n.pass(t.Context())
	list("not enforced", "prod/db-0 BlkioNotInForce some limits are not in force: ")
	n.Removed(sb.ID, ctr("a").ID)
	n.pass(t.Context())
	list("removed")
}
