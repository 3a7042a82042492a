package node

import (
	"errors"
	"slices"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/reminder"
	"github.com/nri-blkio/nri-blkio/policy"
)

// nodeNotices returns what is to be told about the node as a whole now: a kernel without io.max, the errors of reading records and layers, layers elsewhere, and the pods without
// labels of their namespace.
func nodeNotices(kernel, records, layers, elsewhere error, unlabelled []podIdentity) (out []notice) {
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
	add(layersUnknown, layersPause, &line{ // a runtime that starts takes some seconds
		level: logrus.WarnLevel, text: "Asking the runtime for the location of writable layers failed: using its configuration files", err: layers,
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
	for _, x := range n.told.due(nodeNotices(n.kernelProblem(), records, *n.layers.problem.Load(), n.layers.elsewhere(), n.unlabelled(now.Add(-n.resync))), now) {
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
	if err := n.layers.elsewhere(); err != nil {
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
