package node

import (
	"context"
	"strings"

	"github.com/nri-blkio/nri-blkio/plugin/enforce/plan"
	"github.com/nri-blkio/nri-blkio/plugin/node/cause"
	"github.com/nri-blkio/nri-blkio/plugin/nodereport"
	"github.com/nri-blkio/nri-blkio/plugin/podevent"
	"github.com/nri-blkio/nri-blkio/policy"
	"github.com/nri-blkio/nri-blkio/policy/quote"
)

// This file writes events about pods.

// Events receives what happens to pods. A note has text of its pod only.
type Events interface {
	// Note notes that something has happened to a pod. The key is the same if it happens again. Note waits for nothing.
	Note(of podevent.Pod, reason podevent.Reason, key podevent.Key, note string)
	// Run keeps what was noted until ctx ends. present returns the UIDs of the node's pods, and nil while they are not known.
	Run(ctx context.Context, present func() map[string]bool)
}

// event is one for Events.
type event struct {
	of     podevent.Pod
	reason podevent.Reason
	key    podevent.Key
	note   string
}

func (n *Node) note(events ...event) {
	for _, e := range events {
		if n.events != nil {
			n.events.Note(e.of, e.reason, e.key, e.note)
		}
	}
}

func (p *podIdentity) named() podevent.Pod {
	return podevent.Pod{UID: p.uid, Namespace: p.namespace, Name: p.name}
}

func (sb *Sandbox) named() podevent.Pod {
	return podevent.Pod{UID: sb.UID, Namespace: sb.Namespace, Name: sb.Name}
}

// containerText names a container in a note.
func containerText(name string) string { return "container " + quote.Name(name, quote.Most) }

// noteRefused notes that a container is rejected. The kubelet tries again, and each time counts.
func (n *Node) noteRefused(sb *Sandbox, container string, refusal error) {
	n.note(event{sb.named(), podevent.Refused, cause.Of(refusal).About(container), containerText(container) + " is rejected: " + refusal.Error()})
}

// noteApplied notes that a change of a pod counts, with the limits that its containers get by it.
func (n *Node) noteApplied(of *podIdentity, applied string) {
	texts, now := []string{applied}, n.viewPod(*of).containers
	for i := range now {
		c := &now[i]
		if c.decision.policy == nil || !c.isLive() || !of.asks(c.decision.request) {
			continue
		}
		if c.decision.policy.Mode() == policy.ModeObserve {
			return // that is the event then
		}
		texts = append(texts, containerText(c.name)+" gets "+textOf(c.inForce()))
	}
	n.note(event{of.named(), podevent.Changed, podevent.KeyOf(texts...), strings.Join(texts, "; ")})
}

// textOf describes settings.
func textOf(d policy.Desired) string {
	if d.Settings = plan.Kept(d.Settings); len(d.Settings) == 0 {
		return "no limits"
	}
	return strings.Join(describe(d), ", ")
}

// present returns the UIDs of the node's pods, and nil before the runtime has listed them.
func (n *Node) present() map[string]bool {
	if !n.isListed.Load() {
		return nil
	}
	s := n.state.Lock()
	defer n.state.Unlock()
	out := make(map[string]bool, len(s.pods))
	for _, p := range s.pods {
		out[p.uid] = true
	}
	return out
}

// PodsByCgroup returns the pods of the node by the paths of their cgroups, with bystanders.
func (n *Node) PodsByCgroup() map[string]podevent.Pod {
	s := n.state.Lock()
	defer n.state.Unlock()
	out := map[string]podevent.Pod{}
	for _, g := range s.groups {
		if g.cgroup == "" || g.shared() {
			continue
		}
		for _, pod := range g.pods { // all are sandboxes of one pod
			out[g.cgroup] = pod.named()
		}
	}
	return out
}

// Problems returns the problems of pods of which an event has told, and that last. Rejected containers are none of them: the state
// does not have these. It takes the lock for one group at a time, because it formats the texts of all notices.
func (n *Node) Problems() (out []nodereport.Problem) {
	for _, g := range n.notified() {
		out = append(out, n.problemsOf(g)...)
	}
	return out
}

// notified returns the groups with notices, which are few.
func (n *Node) notified() (out []groupIdentity) {
	s := n.state.Lock()
	defer n.state.Unlock()
	for _, g := range s.groups {
		if len(g.told.known) > 0 {
			out = append(out, g.identity())
		}
	}
	return out
}

func (n *Node) problemsOf(of groupIdentity) (out []nodereport.Problem) {
	s := n.state.Lock()
	defer n.state.Unlock()
	g := of.in(s)
	if len(g.told.known) == 0 { // it has left meanwhile
		return nil
	}
	for _, x := range g.notices() {
		if x.event == nil || g.told.known[x.noticeKey].at.IsZero() {
			continue
		}
		e := x.event()
		if of := e.reason.Facts(); of.Type == podevent.Warning && !of.IsFact {
			out = append(out, nodereport.Problem{Namespace: e.of.Namespace, Pod: e.of.Name, Reason: string(e.reason), Text: e.note})
		}
	}
	return out
}
