package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/plugin/record"
)

// recorded is one cgroup with a record of ours.
type recorded struct {
	cgroup cgroupfs.Cgroup
	record *record.Record
}

// podFilter selects a pod. The zero value selects all pods.
type podFilter struct{ namespace, name string }

func (f *podFilter) match(r *record.Record) bool {
	return f.name == "" || r.Namespace == f.namespace && r.Pod == f.name
}

// readRecords finds the records that pass the filter, by pod, the pod's own
// first. A record that cannot be parsed does not hide the others: it is in the
// error, beside them.
func readRecords(tree *cgroupfs.Hierarchy, filter podFilter) ([]recorded, error) {
	var (
		out []recorded
		bad []error
	)
	err := tree.Walk(record.Xattr, func(c cgroupfs.Cgroup, a cgroupfs.Attribute) error {
		r, err := record.ParseAttribute(a)
		switch {
		case err != nil:
			bad = append(bad, fmt.Errorf("cgroup %s: %w", c.Path(), err))
		case r != nil && filter.match(r):
			out = append(out, recorded{c, r})
		}
		return nil
	})
	slices.SortStableFunc(out, func(a, b recorded) int {
		return cmp.Or(
			cmp.Compare(a.record.Namespace, b.record.Namespace), cmp.Compare(a.record.Pod, b.record.Pod),
			cmp.Compare(a.record.UID, b.record.UID), cmp.Compare(a.record.Container, b.record.Container),
		)
	})
	return out, errors.Join(append(bad, err)...)
}
