package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/plugin/bounded"
	"github.com/nri-blkio/nri-blkio/plugin/enforce/plan"
	"github.com/nri-blkio/nri-blkio/plugin/podevent"
	"github.com/nri-blkio/nri-blkio/plugin/podfacts"
	"github.com/nri-blkio/nri-blkio/policy"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
	"github.com/nri-blkio/nri-blkio/policy/quote"
)

// This file writes events about pods, and names the causes of errors, by which an event is recognized as a repeated one.

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
	n.note(event{sb.named(), podevent.Refused, causeOf(refusal).about(container), containerText(container) + " is rejected: " + refusal.Error()})
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

// text returns why the edit is rejected, in text that a tenant may see.
func (e *edit) text() string {
	if e.next == nil {
		return e.err.Error()
	}
	return (&rejectedEdit{partsOf(e.err), errors.New(causeOf(e.err).text)}).Error()
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

// errNoAnswer is the error of a container whose resolution has been under way for too long.
var errNoAnswer = errors.New("one of its disks does not answer")

// errWriteHangs is the error of a group whose writer has been at work for too long.
var errWriteHangs = errors.New("a write to the pod's cgroups hangs in the kernel")

// causeKey identifies the cause of an error for programs: it stays the same while only amounts of other pods change.
type causeKey struct {
	request annotation.Identity // of an error in what is requested, otherwise zero
	failure string              // of another error: its kind and, for a failed write, what was written
}

// about returns the key of an event about the cause and other objects.
func (k causeKey) about(others ...string) podevent.Key {
	return podevent.KeyOf(append(others, k.failure, k.request.String())...)
}

// cause is the cause of an error.
type cause struct {
	causeKey
	text string // may be seen by a tenant
}

// keyOf returns the key of the cause of an error.
func keyOf(err error) causeKey {
	if invalid, ok := errors.AsType[*annotation.Error](err); ok {
		return causeKey{request: invalid.Identity}
	}
	return causeOf(err).causeKey
}

// causeOf returns the cause of an error. The text of other errors than these can have paths of the node, and with them names of other
// tenants: they have one cause.
func causeOf(err error) cause {
	if invalid, ok := errors.AsType[*annotation.Error](err); ok {
		return cause{causeKey{request: invalid.Identity}, invalid.Error()}
	}
	for _, known := range []struct {
		err  error
		kind string
	}{{errNoAnswer, "disk"}, {errWriteHangs, "hang"}, {bounded.ErrBusy, "busy"}} {
		if errors.Is(err, known.err) {
			return cause{causeKey{failure: known.kind}, known.err.Error()}
		}
	}
	if failed, ok := errors.AsType[*cgroupfs.CgroupError](err); ok && failed.Data != "" {
		reason := reasonOf(failed.Err)
		key := causeKey{failure: fmt.Sprintf("write %q", []string{failed.Op, failed.Name, failed.Data, reason})}
		return cause{key, fmt.Sprintf("%s %s %q: %s", failed.Op, failed.Name, failed.Data, reason)}
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return cause{causeKey{failure: "deadline"}, "a disk or a cgroup does not answer in time"}
	}
	return cause{causeKey{failure: "internal"}, strings.TrimPrefix(ErrInternal.Error(), "nri-blkio: ")}
}

// reasonOf returns the reason of the system for a failed write, without the path.
func reasonOf(err error) string {
	for _, known := range []error{blkio.ErrGone, blkio.ErrNoDevice, blkio.ErrNotSupported} {
		if errors.Is(err, known) {
			return known.Error()
		}
	}
	if failed, ok := errors.AsType[*fs.PathError](err); ok {
		err = failed.Err
	}
	return err.Error()
}

// partsOf returns the parts of an edit that an error rejects.
func partsOf(err error) podfacts.Parts {
	if r, ok := errors.AsType[*rejectedEdit](err); ok {
		return r.parts
	}
	return podfacts.Annotations
}
