package inspect

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/plugin/record"
)

// Recorded is a cgroup with its record.
type Recorded struct {
	Cgroup cgroupfs.Cgroup
	Record *record.Record
}

// Filter selects pods by namespace and name. "" selects any.
type Filter struct {
	Namespace, Name string
	among           *map[string]bool // "NAMESPACE/NAME" of the pods to select among; nil: all
}

// Among returns a filter that selects among these pods only, "NAMESPACE/NAME".
func (f Filter) Among(pods map[string]bool) Filter {
	f.among = &pods
	return f
}

// ParseFilter parses "NAMESPACE/NAME".
func ParseFilter(s string) (Filter, error) {
	ns, name, ok := strings.Cut(s, "/")
	if !ok || ns == "" || name == "" || strings.Contains(name, "/") {
		return Filter{}, fmt.Errorf("invalid pod %q (write NAMESPACE/NAME)", s)
	}
	return Filter{Namespace: ns, Name: name}, nil
}

// String is the inverse of ParseFilter. It returns "" for a filter without a name.
func (f Filter) String() string {
	if f.Name == "" {
		return ""
	}
	return f.Namespace + "/" + f.Name
}

// Matches reports whether the filter selects a pod.
func (f Filter) Matches(namespace, pod string) bool {
	return (f.Namespace == "" || f.Namespace == namespace) && (f.Name == "" || f.Name == pod) && (f.among == nil || (*f.among)[namespace+"/"+pod])
}

// Records returns the records of the selected pods, sorted by pod, that of the pod itself
// first. A record that cannot be parsed is left out, and is in the error.
func Records(tree *cgroupfs.Hierarchy, filter Filter) ([]Recorded, error) {
	var (
		out []Recorded
		bad []error
	)
	err := tree.Walk(record.Xattr, func(c cgroupfs.Cgroup, a cgroupfs.Attribute) error {
		r, err := record.ParseAttribute(a)
		switch {
		case err != nil:
			bad = append(bad, fmt.Errorf("cgroup %s: %w", c.Path(), err))
		case r != nil && filter.Matches(r.Namespace, r.Pod):
			out = append(out, Recorded{c, r})
		}
		return nil
	})
	slices.SortStableFunc(out, func(a, b Recorded) int {
		return cmp.Or(
			cmp.Compare(a.Record.Namespace, b.Record.Namespace), cmp.Compare(a.Record.Pod, b.Record.Pod),
			cmp.Compare(a.Record.UID, b.Record.UID), cmp.Compare(a.Record.Container, b.Record.Container),
		)
	})
	return out, errors.Join(append(bad, err)...)
}

// PodsWithoutRecord returns the pods of recorded containers whose own cgroup has no record, with an empty one.
// No limit has to be removed there yet, but a running plugin may add the backstop when the last unlimited
// container ends. A record that cannot be parsed counts as one: an empty record in its place would hide limits
// that are in force.
func PodsWithoutRecord(tree *cgroupfs.Hierarchy, records []Recorded) []Recorded {
	seen := map[string]bool{}
	for _, r := range records {
		seen[r.Cgroup.Path()] = true
	}
	var out []Recorded
	for _, r := range records {
		pod := path.Dir(r.Cgroup.Path())
		if r.Record.Kind != record.KindContainer || seen[pod] {
			continue
		}
		seen[pod] = true
		if _, err := record.Read(tree.Cgroup(pod), record.KindPod); err != nil {
			continue // Records returns this error
		}
		out = append(out, Recorded{tree.Cgroup(pod), &record.Record{
			Kind: record.KindPod, Namespace: r.Record.Namespace, Pod: r.Record.Pod, UID: r.Record.UID,
		}})
	}
	return out
}
