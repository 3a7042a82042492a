package node

import (
	"errors"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/nri-blkio/nri-blkio/plugin/reminder"
	"github.com/nri-blkio/nri-blkio/policy"
)

// A rule can need facts that only the API server knows: the labels of namespaces, and the kinds of containers. Without them a pod
// may have limits that the policy does not mean. The log and the metrics name such pods.

// lacking follows pods for which a fact is unknown that rules need. Only the reconciler uses it.
type lacking struct {
	since   map[string]time.Time // by sandbox
	problem reminder.Reminder
}

// errNotDescribed is why a fact about a pod is unknown.
var errNotDescribed = errors.New("the cluster part (run --only cluster) does not run on this node, or has not described these pods")

// warnLacking logs an error about pods that lack a fact for longer than from one resync to the next. A new pod has it a moment after
// its sandbox.
func (n *Node) warnLacking() {
	n.unlabelled.warn(n.log, n.resync, n.lackingLabels(), "Labels of namespaces are unknown: rules with namespaceSelector do not match their pods")
	n.kindless.warn(n.log, n.resync, n.lackingKinds(), "Kinds of containers are unknown: all containers of these pods have the class of their rule, and not those of containerClasses")
}

func (l *lacking) warn(log logrus.FieldLogger, resync time.Duration, pods []Sandbox, text string) {
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
		log.WithError(err).WithField("pods", lasting).WithField("pod", example).Error(text)
	}
}

// lackingLabels returns the sandboxes whose rule is not certain, because labels of their namespaces are unknown.
func (n *Node) lackingLabels() []Sandbox {
	pol := n.policy.Load()
	keys := pol.NamespaceKeys()
	if keys == nil {
		return nil
	}
	return n.pods.that(func(f *policy.PodFacts) bool { return !f.NamespaceLabels.Know(keys) }, pol.LacksNamespaceLabels)
}

// lackingKinds returns the sandboxes whose rule has classes for kinds of containers, and whose kinds are unknown.
func (n *Node) lackingKinds() []Sandbox {
	pol := n.policy.Load()
	if len(pol.ContainerKinds()) == 0 {
		return nil
	}
	return n.pods.that(func(f *policy.PodFacts) bool { return f.Kinds == nil }, pol.LacksKinds)
}

// that returns the sandboxes with containers for whose facts two functions hold. The second one may take longer, and is called
// without the lock.
func (t *podTable) that(first, then func(*policy.PodFacts) bool) (out []Sandbox) {
	for _, p := range t.factsThat(first) {
		if then(&p.facts) {
			out = append(out, p.sandbox)
		}
	}
	return out
}

// podFacts has the names of a sandbox, and the facts about its pod.
type podFacts struct {
	sandbox Sandbox
	facts   policy.PodFacts
}

// factsThat returns the sandboxes with containers for whose facts a function holds.
func (t *podTable) factsThat(hold func(*policy.PodFacts) bool) (out []podFacts) {
	s := t.state.Lock()
	defer t.state.Unlock()
	for _, p := range s.pods {
		facts := p.request.now.Load().facts
		if next := p.edit.next; next != nil && facts.Kinds == nil {
			facts.Kinds = next.facts.Kinds // known, though the budget has no room for their classes
		}
		if p.hasLiveContainer() && hold(&facts) {
			out = append(out, podFacts{Sandbox{ID: p.id, Namespace: p.namespace, Name: p.name}, facts})
		}
	}
	for _, b := range s.bystanders {
		live, _ := s.liveOf(b.sandbox.UID, b.sandbox.Namespace, b.sandbox.Name)
		facts := b.sandbox.Facts()
		facts.Labels, facts.Kinds = live.labels(b.sandbox.Labels), live.Kinds
		facts.NamespaceLabels = policy.KnownLabels(live.NamespaceLabels, s.namespaceKeys)
		if len(b.containers) > 0 && hold(&facts) {
			out = append(out, podFacts{b.sandbox, facts})
		}
	}
	return out
}
