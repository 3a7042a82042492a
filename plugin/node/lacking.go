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

func (l *lacking) warn(log logrus.FieldLogger, resync time.Duration, pods []Sandbox) {
	now, since := time.Now(), map[string]time.Time{}
	lasting, example := 0, ""
	for _, p := range pods {
		began, known := l.since[p.ID]
		if !known {
			began = now
		}
		if since[p.ID] = began; now.Sub(began) >= resync {
			lasting, example = lasting+1, p.Namespace+"/"+p.Name
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

// lackingLabels returns the sandboxes whose rule is not certain, because labels of their namespaces are unknown. It asks the rules
// without the lock, because that may take longer.
func (n *Node) lackingLabels() (out []Sandbox) {
	pol := n.policy.Load()
	keys := pol.NamespaceKeys()
	if keys == nil {
		return nil
	}
	for _, p := range n.factsWhere(func(f *policy.PodFacts) bool { return !f.NamespaceLabels.Know(keys) }) {
		if pol.LacksNamespaceLabels(&p.facts) {
			out = append(out, p.sandbox)
		}
	}
	return out
}

// podFacts is a sandbox, with the facts about its pod.
type podFacts struct {
	sandbox Sandbox
	facts   policy.PodFacts
}

// factsWhere returns the sandboxes with containers whose facts match.
func (n *Node) factsWhere(match func(*policy.PodFacts) bool) (out []podFacts) {
	s := n.state.Lock()
	defer n.state.Unlock()
	for _, p := range s.pods {
		facts := p.request.now.Load().facts
		if p.hasLiveContainer() && match(&facts) {
			out = append(out, podFacts{Sandbox{ID: p.id, Namespace: p.namespace, Name: p.name}, facts})
		}
	}
	for _, b := range s.bystanders {
		live, _ := s.liveOf(b.sandbox.UID, b.sandbox.Namespace, b.sandbox.Name)
		facts := b.sandbox.Facts()
		facts.Labels = live.labels(b.sandbox.Labels)
		facts.NamespaceLabels = policy.KnownLabels(live.NamespaceLabels, s.namespaceKeys)
		if len(b.containers) > 0 && match(&facts) {
			out = append(out, podFacts{b.sandbox, facts})
		}
	}
	return out
}
