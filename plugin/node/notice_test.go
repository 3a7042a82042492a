package node

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/podevent"
)

// newNotingNode returns a node whose claim is in memory or on NFS, and the events of its pod.
func newNotingNode(t *testing.T, policyText string) (*liveNode, *noted) {
	t.Helper()
	l, events := newLiveNode(t), &noted{}
	l.restart(rules(t, policyText))
	l.Synchronize(nil, nil)
	l.events = events
	l.storage = disks{func(path string) blkio.Backing {
		if strings.HasPrefix(path, "/mnt/data") {
			return blkio.Backing{FSType: "nfs4", Reason: "nfs4 has no disk on this node"}
		}
		return twoDisks(path)
	}}
	return l, events
}

// of returns the notes about the pod of most tests with one of these reasons that were taken since the last call.
func (e *noted) of(reasons ...podevent.Reason) (out []string) {
	for _, line := range e.take() {
		for _, reason := range reasons {
			if note, found := strings.CutPrefix(line, "u1 prod/db-0 "+string(reason)+": "); found {
				out = append(out, note)
			}
		}
	}
	return out
}

// TestEventOfRefusedStart verifies that a refused start does not add a cause.
func TestEventOfRefusedStart(t *testing.T) {
	l, events := newNotingNode(t, "")
	sb := sandbox(annotationsOf(limitsKey+"containers", "/mem wbps=1Mi"))
	l.claim(claimsOf(""), limitsKey+"containers", "/mem wbps=1Mi")
	s := session{l.Node, noDeadline}
	if err := s.StartContainer(t.Context(), sb, ctr("a", bind("/mnt/mem/x", "/mem"))); err == nil {
		t.Fatal("not rejected")
	}
	l.pass(t.Context())
	if got := events.of(podevent.NotInForce); len(got) > 0 {
		t.Errorf("refused: %q", got)
	}
}

// TestNoticeAfterAnswer verifies that nothing is told about a container that may be refused before the answer to its start, and then
// only what was not told at its creation.
func TestNoticeAfterAnswer(t *testing.T) {
	for _, isCreated := range []bool{false, true} {
		l, _ := newNotingNode(t, "onError: {invalid: ignore}\n")
		l.logged.Reset()
		sb, want := sandbox(annotationsOf(limitsKey+"containers", "rootfs wbps=1Mi; rootfs wpbs=1Mi")), 0
		if isCreated {
			want = 1
			if _, err := l.create(t.Context(), sb, ctr("a"), false); err != nil {
				t.Fatal(err)
			}
		}
		c := l.findOrRegister(l.lookup(sb), ctr("a"))
		if err := l.resolve(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if l.tell(c.pod.group); len(l.logged.AllEntries()) != want {
				t.Errorf("created %t: %d lines, want %d", isCreated, len(l.logged.AllEntries()), want)
			}
			l.startAccepted(c)
			want = 1
		}
	}
}

// TestEventPatience verifies that a cause that mostly ends within seconds is an event only if it lasts.
func TestEventPatience(t *testing.T) {
	for name, policyText := range map[string]string{"a disk cannot be read": "", "claims are not known yet": "onError: {unenforceable: ignore}\n"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, events := newNotingNode(t, policyText)
				value := "pvc:data wbps=1Mi"
				if policyText == "" {
					value = "/data wbps=1Mi"
					l.storage = disks{func(string) blkio.Backing { return blkio.Backing{Err: fmt.Errorf("secret"), Reason: "no answer"} }}
					l.claim(claimsOf(""), limitsKey+"containers", value)
				}
				l.run(sandbox(annotationsOf(limitsKey+"containers", value)), "a", "b")
				for _, step := range []struct {
					after time.Duration
					want  int
				}{{0, 0}, {patience - 1, 0}, {1, 1}, {time.Hour, 0}} {
					time.Sleep(step.after)
					l.pass(t.Context())
					got := events.of(podevent.NotInForce)
					if len(got) != step.want || strings.Contains(fmt.Sprint(got), "secret") {
						t.Errorf("after %v: %q", step.after, got)
					}
				}
			})
		})
	}
}

// TestEventManyClaims verifies that an event of many claims has room for the limits, and that it names claims beside other parts.
func TestEventManyClaims(t *testing.T) {
	e := editOf{claims: []string{"a", "b", "c", "d", "e"}}
	if got, want := e.applied(partLabels|partClaims), "edited labels and limits of claims a, b, c and 2 more apply"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// BenchmarkTell measures what notices cost in a pass over a node with 250 pods of two containers, after all were told: without
// anything that is not in force, and with one cause for each container.
func BenchmarkTell(b *testing.B) {
	for name, value := range map[string]string{"none": "rootfs wbps=1Mi", "causes": "rootfs wbps=1Mi; rootfs wpbs=1Mi"} {
		n := newBudgetNode(b, "onError: {invalid: ignore}\n")
		n.events = &noted{}
		for i := range benchPods {
			sb := tenant(fmt.Sprint(i), value)
			n.SetLive(sb.UID, &Live{Namespace: sb.Namespace, Name: sb.Name, Annotations: sb.Annotations, Claims: claimsOf("")})
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
	known.forget(notWritten, podIdentity{}.ref)
	if got := known.due([]notice{once}, at); len(got) > 0 {
		t.Error("a notice of another kind was forgotten")
	}
	known.forget(changeRejected, podIdentity{}.ref)
	if got := known.due([]notice{once}, at); len(got) != 1 {
		t.Error("a forgotten notice is not told again")
	}
}
