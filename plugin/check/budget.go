package check

import (
	"fmt"
	"maps"
	"slices"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// granted returns what the containers that run are granted of the budget for the pod's namespace, and the names of the disks.
func (o *outcome) granted() (sums map[blkio.Address]blkio.Amount, disks map[blkio.Dev]string) {
	sums, disks = map[blkio.Address]blkio.Amount{}, map[blkio.Dev]string{}
	for i := range o.running {
		d := &o.running[i].Desired
		d.Charges(o.pod.Policy.Budget(), func(at blkio.Address, amount blkio.Amount) {
			sums[at], disks[at.Dev] = policy.Plus(sums[at], amount), d.DiskName(at.Dev)
		})
	}
	return sums, disks
}

// checkBudget returns an error if the budget has no room for one more container of the pod, although no other pod takes any of it.
func (o *outcome) checkBudget(d *policy.Desired, total policy.Settings) error {
	sums, _ := o.granted()
	claim := policy.Claim{Pod: o.pod.Policy, Desired: d, Total: total, Granted: func(at blkio.Address) policy.Granted {
		bound, _ := o.bound.Get(at)
		return policy.Granted{Own: sums[at], Bound: bound.Amount, Pods: min(len(o.running), 1)}
	}}
	if err := claim.Check(); err != nil { // not returned as it is: a nil pointer is an error
		return err
	}
	return nil
}

// exceeds adds the error of a container for which the budget has no room.
func (o *outcome) exceeds(container string, err error) {
	o.result.fail(policy.Desired{}, err)
	if o.pod.Policy.Action(err) == policy.Ignore {
		starts := "container " + container + " starts although it exceeds the budget, as onError of the node's policy has it"
		o.noteErrors(starts, "in mode enforce, "+starts)
	}
}

// noteBudget adds notes on what the pod takes of the budget for its namespace.
func (o *outcome) noteBudget(total policy.Settings) {
	b := o.pod.Policy.Budget()
	if b == nil {
		return
	}
	sums, disks := o.granted()
	for _, at := range slices.SortedFunc(maps.Keys(sums), blkio.Address.Compare) {
		sum := sums[at]
		if s, found := total.Get(at); found {
			sum = min(sum, s.Amount)
		}
		if most := b.Limits[at.Key]; sum <= most {
			o.result.Notes = append(o.result.Notes, fmt.Sprintf("%s on %s counts for the budget of namespace %s: %s for all of its pods on the node",
				valueText(at.Key, sum), disks[at.Dev], o.pod.Namespace, annotation.FormatAmount(at.Key, most)))
		}
	}
}
