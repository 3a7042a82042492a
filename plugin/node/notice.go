package node

import (
	"errors"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/node/cause"
	"github.com/nri-blkio/nri-blkio/plugin/node/guard"
	"github.com/nri-blkio/nri-blkio/plugin/node/layers"
	"github.com/nri-blkio/nri-blkio/plugin/podfacts"
	"github.com/nri-blkio/nri-blkio/plugin/reminder"
	"github.com/nri-blkio/nri-blkio/policy"
)

// What lasts is told once, in a line of the log, an event or both. Pure functions list the notices of a group of pods (podnotices.go)
// and of the node as a whole (nodeNotices): all states that are to be told while they last. told has those that were listed,
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
	cause     cause.Key
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
	if t.known, t.next = nil, now.Add(math.MaxInt64); len(listed) > 0 {
		t.known = make(map[noticeKey]toldNotice, len(listed))
	}
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

// nodeNotices returns what is to be told about the node as a whole now: a kernel without io.max, the errors of reading records and
// layers, layers elsewhere, and the pods without labels of their namespace.
func nodeNotices(kernel, records, located, elsewhere error, unlabelled []podIdentity) (out []notice) {
	add := func(kind noticeKind, patience time.Duration, l *line) {
		if l.err != nil {
			out = append(out, notice{noticeKey: noticeKey{kind: kind}, patience: patience, again: reminder.Interval, value: l.err.Error(), line: l})
		}
	}
	add(limitsMissing, 0, &line{
		level: logrus.WarnLevel, text: "This node cannot limit: annotations with limits are unenforceable, and limits of classes are skipped", err: kernel,
	})
	add(recordsUnread, 0, &line{
		level: logrus.WarnLevel, text: "Reading the records of pods without limits failed, retrying: limits of an earlier policy may stay", err: records,
	})
	add(layersUnknown, layers.MaxPause, &line{ // a runtime that starts takes some seconds
		level: logrus.WarnLevel, text: "Asking the runtime for the location of writable layers failed: using its configuration files", err: located,
	})
	add(layersElsewhere, 0, &line{
		level: logrus.WarnLevel, text: "Writable layers are on another disk than the runtime or its configuration says: rootfs means where containers have them", err: elsewhere,
	})
	if len(unlabelled) > 0 {
		add(labelsUnknown, 0, &line{
			level: logrus.ErrorLevel, text: "Labels of namespaces are unknown: rules with namespaceSelector do not match their pods", err: errNotDescribed,
			fields: logrus.Fields{"pods": len(unlabelled), "pod": unlabelled[0].String()},
		})
	}
	return out
}

// tellOfNode tells what is due about the node. The labels of a new pod's namespace are known a moment after its sandbox is.
func (n *Node) tellOfNode(records error) {
	now := time.Now()
	for _, x := range n.told.due(nodeNotices(n.kernelProblem(), records, n.layers.Problem(), n.layers.Elsewhere(), n.unlabelled(now.Add(-n.resync))), now) {
		n.logLines(*x.line)
	}
}

// kernelProblem returns why this node cannot limit, or nil.
func (n *Node) kernelProblem() error {
	if slices.Contains(n.controls.Missing(), blkio.IOMax) {
		return errors.New(policy.NoIOMax)
	}
	return nil
}

// Problem returns why this node cannot limit, or that writable layers are elsewhere than the runtime says, for people; "" for neither.
func (n *Node) Problem() string {
	if err := n.kernelProblem(); err != nil {
		return err.Error()
	}
	if err := n.layers.Elsewhere(); err != nil {
		return "writable layers are on another disk than the runtime or its configuration says: " + err.Error()
	}
	return ""
}

// A rule can need the labels of namespaces, which only the API server knows. Without them a pod may have limits that the policy does
// not mean. The log and the metrics name such pods.

// errNotDescribed is why labels of a pod's namespace are unknown.
var errNotDescribed = errors.New("the cluster part (run --only cluster) does not run on this node, has written no document for these pods, or has left this out because it is too large")

// unlabelled returns the pods that joined before some time and whose rule is not certain, because labels of their namespaces are
// unknown. It asks the rules without the lock, because that may take longer.
func (n *Node) unlabelled(before time.Time) (out []podIdentity) {
	pol := n.policy.Load()
	keys := pol.NamespaceKeys()
	if keys == nil {
		return nil
	}
	for pod, facts := range n.withoutLabels(keys, before) {
		if pol.LacksNamespaceLabels(&facts) {
			out = append(out, pod)
		}
	}
	return out
}

// withoutLabels returns the pods with containers that joined before some time, and whose namespace has unknown labels of some keys.
func (n *Node) withoutLabels(keys []string, before time.Time) map[podIdentity]policy.PodFacts {
	s := n.state.Lock()
	defer n.state.Unlock()
	out := map[podIdentity]policy.PodFacts{}
	for _, p := range s.pods {
		if facts := s.factsOf(p); p.joined.Before(before) && p.hasLiveContainer() && !facts.NamespaceLabels.Know(keys) {
			out[p.podIdentity] = facts
		}
	}
	return out
}
