package node

import (
	"maps"
	"math"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/nri-blkio/nri-blkio/plugin/node/guard"
	"github.com/nri-blkio/nri-blkio/plugin/podfacts"
	"github.com/nri-blkio/nri-blkio/policy"
)

// What lasts is told once, in a line of the log, an event or both. Pure functions list the notices of a group of pods (podnotices.go)
// and of the node as a whole (nodenotices.go): all states that are to be told while they last. told has those that were listed,
// and returns those that are due. A group is listed again only after it has changed, or when a notice of it waits for its time.

// notice is a state that is to be told while it lasts.
type notice struct {
	noticeKey
	patience time.Duration // for which it has to last before it is told
	again    time.Duration // after which it is told again; 0 for never
	value    string        // with another one it is told again; "" if only the key counts
	event    func() event  // nil for none; called with the lock
	line     *line         // of the log; nil for none
	end      *line         // that it has ended; nil for none
}

// noticeKey identifies a notice for programs. Of its parts those are set that tell apart two notices of a kind.
type noticeKey struct {
	kind      noticeKind
	pod       guard.Ref[state, pod]
	container containerRef
	policy    *policy.Pod
	request   *podfacts.Request
	settings  int
	cause     causeKey
	parts     podfacts.Parts // of an edit
	subject   string         // a mount
}

// noticeKind is what a notice is about.
type noticeKind uint8

// The kinds of notices.
const (
	wouldGet noticeKind = iota // a decision in mode observe
	noMemoryLimit
	notWritten   // limits could not be decided or written
	notGranted   // a part of what is asked for
	keepsGranted // as notGranted, and limits that were granted before stay
	changeRejected
	retried     // as notWritten, for all pods of the group, and at once
	notEnforced // as notGranted, for a container, and at once
	claimIgnored
	undeclaredUnknown
	diskUnresolved
	processUnknown
	diskAdded
	targetsUnmatched
	foreignLimits
	limitsMissing
	recordsUnread
	layersUnknown
	layersElsewhere
	labelsUnknown
)

// line is a line of the log.
type line struct {
	level   logrus.Level
	text    string
	fields  logrus.Fields
	err     error                         // nil for none
	lines   func(*policy.Policy) []string // texts of as many lines, called without the lock; nil for text alone
	rejects bool                          // it is counted as a rejected edit
}

// told has what was listed at the last look.
type told struct {
	known map[noticeKey]toldNotice
	next  time.Time // when to look again; zero after a change
}

type toldNotice struct {
	since, at time.Time // when it was first listed, and last told
	value     string    // that was told
	end       *line
}

// look has the notices listed again, because they may have changed.
func (t *told) look() { t.next = time.Time{} }

// due returns those notices that are to be told now, and keeps that they were. It forgets what is not listed any more.
func (t *told) due(listed []notice, now time.Time) (out []notice) {
	before := t.known
	t.known, t.next = make(map[noticeKey]toldNotice, len(listed)), now.Add(math.MaxInt64)
	for _, x := range listed {
		if _, isListed := t.known[x.noticeKey]; isListed {
			continue
		}
		known, isKnown := before[x.noticeKey]
		if !isKnown {
			known.since = now
		}
		at, isTold := known.since.Add(x.patience), !known.at.IsZero() && known.value == x.value
		if isTold {
			at = known.at.Add(x.again)
		}
		if isOver := isTold && x.again == 0; !isOver && !now.Before(at) {
			known.at, known.value, known.end = now, x.value, x.end
			out, isTold, at = append(out, x), true, now.Add(x.again)
		}
		if t.known[x.noticeKey] = known; at.Before(t.next) && (!isTold || x.again > 0) {
			t.next = at
		}
	}
	for key, known := range before {
		if _, lasts := t.known[key]; !lasts && known.end != nil {
			out = append(out, notice{noticeKey: key, line: known.end})
		}
	}
	return out
}

// forget has notices of a kind about a pod told again.
func (t *told) forget(kind noticeKind, pod guard.Ref[state, pod]) {
	maps.DeleteFunc(t.known, func(key noticeKey, _ toldNotice) bool { return key.kind == kind && key.pod == pod })
}

// tell tells what is due about the pods of a group.
func (n *Node) tell(of groupIdentity) {
	events, lines := n.dueOf(of, time.Now())
	n.note(events...)
	n.logLines(lines...)
}

func (n *Node) dueOf(of groupIdentity, now time.Time) (events []event, lines []line) {
	s := n.state.Lock()
	defer n.state.Unlock()
	g := of.in(s)
	if now.Before(g.told.next) {
		return nil, nil
	}
	for _, x := range g.told.due(g.notices(), now) {
		if x.event != nil {
			events = append(events, x.event())
		}
		if x.line != nil {
			lines = append(lines, *x.line)
		}
	}
	return events, lines
}

func (n *Node) logLines(lines ...line) {
	for _, l := range lines {
		log, texts := n.log.WithFields(l.fields), []string{l.text}
		if l.err != nil {
			log = log.WithError(l.err)
		}
		if l.rejects {
			n.metrics.edits.rejected.Add(1)
		}
		if l.lines != nil {
			texts = l.lines(n.policy.Load())
		}
		for _, text := range texts {
			log.Log(l.level, text)
		}
	}
}
