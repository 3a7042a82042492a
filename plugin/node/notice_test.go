package node

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sirupsen/logrus/hooks/test"

	"github.com/nri-blkio/nri-blkio/plugin/node/guard"
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
			n.startAccepted(c)
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

// TestTold verifies that a notice is told when it has lasted, again if it is to be or has another text, and again after it was not
// listed or was forgotten; and that another look finds nothing before the time that is known.
func TestTold(t *testing.T) {
	var known told
	once := notice{noticeKey: noticeKey{kind: changeRejected}}
	lasting := notice{noticeKey: noticeKey{kind: notWritten}, patience: patience, again: time.Hour}
	small, large := notice{noticeKey: noticeKey{kind: foreignLimits}, value: "small"}, notice{noticeKey: noticeKey{kind: foreignLimits}, value: "large"}
	problem := notice{noticeKey: noticeKey{kind: retried}, end: &line{text: "over"}}
	at := time.Unix(1e9, 0)
	const never = math.MaxInt64
	for i, step := range []struct {
		after  time.Duration
		listed []notice
		want   int
		next   time.Duration // until another look
	}{
		{0, []notice{once, lasting, once}, 1, patience},
		{patience - 1, []notice{once, lasting}, 0, 1},
		{1, []notice{lasting, once}, 1, time.Hour},
		{time.Hour - 1, []notice{once, lasting}, 0, 1},
		{1, []notice{once, lasting}, 1, time.Hour},
		{1, nil, 0, never},
		{1, []notice{once, lasting}, 1, patience},
		{patience, []notice{lasting}, 1, time.Hour},
		{1, []notice{small}, 1, never},
		{time.Hour, []notice{small}, 0, never},
		{1, []notice{large}, 1, never},
		{1, []notice{problem}, 1, never},
		{1, []notice{}, 1, never},
		{1, []notice{once}, 1, never},
	} {
		at = at.Add(step.after)
		if got := known.due(step.listed, at); len(got) != step.want || len(known.known) != min(len(step.listed), 2) {
			t.Errorf("step %d: %d notices are due, want %d; %d are kept", i, len(got), step.want, len(known.known))
		}
		if got := known.next.Sub(at); got != step.next {
			t.Errorf("step %d: another look is due after %v, want %v", i, got, step.next)
		}
	}
	known.forget(notWritten, guard.Ref[state, pod]{})
	if got := known.due([]notice{once}, at); len(got) > 0 {
		t.Error("a notice of another kind was forgotten")
	}
	known.forget(changeRejected, guard.Ref[state, pod]{})
	if got := known.due([]notice{once}, at); len(got) != 1 {
		t.Error("a forgotten notice is not told again")
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
