package podfacts

import "github.com/nri-blkio/nri-blkio/policy"

const (
	// labelRoom is the memory in bytes that the labels of a pod take at most. Labels by which a policy selects
	// pods do not count. A tenant decides how many labels there are.
	labelRoom = 32 << 10
	// labelSize is the memory in bytes that a label takes without its text.
	labelSize = 64
)

// WithinRoom returns facts without labels that are not kept. If all labels of the pod would take too much memory, isCut is true, and only
// those are kept by which a rule of the policy selects pods. A later policy then misses its new labels.
func (f Facts) WithinRoom(pol *policy.Policy) (kept Facts, isCut bool) {
	size := 0
	for name, value := range f.Labels {
		if size += labelSize + len(name) + len(value); size > labelRoom {
			f.Labels = selectedLabels(f.Labels, pol)
			return f, true
		}
	}
	return f, false
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
