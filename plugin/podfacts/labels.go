package podfacts

import "github.com/nri-blkio/nri-blkio/policy"

const (
	// LabelRoom is the memory in bytes that the labels of a pod take at most. Labels by which a policy selects
	// pods do not count. A tenant decides how many labels there are.
	LabelRoom = 32 << 10
	// LabelSize is the memory in bytes that a label takes without its text.
	LabelSize = 64
)

// WithinRoom returns facts without labels that are not kept. If all labels of the pod would take too much memory, isCut is true, and only
// those are kept by which a rule of the policy selects pods. A later policy then misses its new labels.
func (f Facts) WithinRoom(pol *policy.Policy) (kept Facts, isCut bool) {
	all, size := f.Labels, 0
	for name, value := range all {
		if size += LabelSize + len(name) + len(value); size > LabelRoom {
			f.Labels = map[string]string{}
			for _, key := range pol.PodKeys() {
				if value, found := all[key]; found {
					f.Labels[key] = value
				}
			}
			return f, true
		}
	}
	return f, false
}
