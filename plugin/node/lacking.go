package node

import (
	"errors"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/nri-blkio/nri-blkio/plugin/reminder"
	"github.com/nri-blkio/nri-blkio/policy"
)

// A rule can need the labels of namespaces, which only the API server knows. Without them a pod may have limits that the policy does
// not mean. The log and the metrics name such pods.

// lacking has the pods for which the policy needs labels that are unknown. Only the reconciler uses it.
type lacking struct {
	since   map[string]time.Time // by sandbox
	problem reminder.Reminder
}

// errNotDescribed is why labels of a pod's namespace are unknown.
var errNotDescribed = errors.New("the cluster part (run --only cluster) does not run on this node, has written no document for these pods, or has left this out because it is too large")

// warnLacking logs an error about pods that have lacked labels from one resync to the next. The labels of a new pod's namespace are
// known a moment after its sandbox is.
func (n *Node) warnLacking() {
	n.unlabelled.warn(n.log, n.resync, n.lackingLabels())
}

func (l *lacking) warn(log logrus.FieldLogger, resync time.Duration, pods []podIdentity) {
	now, since := time.Now(), map[string]time.Time{}
	lasting, example := 0, ""
	for _, p := range pods {
		began, known := l.since[p.id]
		if !known {
			began = now
		}
		if since[p.id] = began; now.Sub(began) >= resync {
			lasting, example = lasting+1, p.String()
		}
	}
	l.since = since
	var err error
	if lasting > 0 {
		err = errNotDescribed
	}
	if l.problem.Due(now, err) {
		log.WithError(err).WithField("pods", lasting).WithField("pod", example).Error("Labels of namespaces are unknown: rules with namespaceSelector do not match their pods")
	}
}

// lackingLabels returns the pods whose rule is not certain, because labels of their namespaces are unknown. It asks the rules
// without the lock, because that may take longer.
func (n *Node) lackingLabels() (out []podIdentity) {
	pol := n.policy.Load()
	keys := pol.NamespaceKeys()
	if keys == nil {
		return nil
	}
	for _, p := range n.factsWhere(func(f *policy.PodFacts) bool { return !f.NamespaceLabels.Know(keys) }) {
		if pol.LacksNamespaceLabels(&p.facts) {
			out = append(out, p.podIdentity)
		}
	}
	return out
}

// podFacts is a pod, with the facts about it.
type podFacts struct {
	podIdentity
	facts policy.PodFacts
}

// factsWhere returns the pods with containers whose facts match.
func (n *Node) factsWhere(match func(*policy.PodFacts) bool) (out []podFacts) {
	s := n.state.Lock()
	defer n.state.Unlock()
	for _, p := range s.pods {
		if facts := s.factsOf(p); p.hasLiveContainer() && match(&facts) {
			out = append(out, podFacts{p.podIdentity, facts})
		}
	}
	return out
}
