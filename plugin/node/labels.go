package node

import (
	"github.com/sirupsen/logrus"

	"github.com/nri-blkio/nri-blkio/policy"
)

const (
	// labelRoom is the memory in bytes that the labels of a pod take at most. Labels by which a policy selects
	// pods do not count. A tenant decides how many labels there are.
	labelRoom = 32 << 10
	// labelSize is the memory in bytes that a label takes without its text.
	labelSize = 64
)

// keptLabels returns the labels of a pod that are kept. If all labels would take more than labelRoom, isCut is
// true, and only those labels are kept by which a rule of the policy selects pods. A later policy then misses
// its new labels.
func keptLabels(labels map[string]string, pol *policy.Policy) (kept map[string]string, isCut bool) {
	size := 0
	for name, value := range labels {
		if size += labelSize + len(name) + len(value); size > labelRoom {
			return selectedLabels(labels, pol), true
		}
	}
	return labels, false
}

// selectedLabels returns those labels by which a rule of the policy selects pods.
func selectedLabels(labels map[string]string, pol *policy.Policy) map[string]string {
	selected := map[string]string{}
	for i := range pol.Rules {
		if pol.Rules[i].Match.Selector == nil {
			continue
		}
		needed, _ := pol.Rules[i].Match.Selector.Requirements()
		for _, r := range needed {
			if value, found := labels[r.Key()]; found {
				selected[r.Key()] = value
			}
		}
	}
	return selected
}

// warnCut logs that not all labels of a pod are kept.
func (sb *Sandbox) warnCut(log logrus.FieldLogger) {
	log.WithField("pod", sb.Namespace+"/"+sb.Name).Warn("Some labels of a pod are not kept, because they are too long: a new policy can miss them")
}
