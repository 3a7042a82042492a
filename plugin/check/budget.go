package check

import (
	"fmt"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
	"github.com/nri-blkio/nri-blkio/policy/budget"
)

// share returns what the containers that run are granted of the budget for the pod's namespace, with these limits of the pod as a whole.
func (o *outcome) share(total policy.Settings) (out budget.Share) {
	b := o.pod.Policy.Budget()
	for i := range o.running {
		out.AddContainer(&o.running[i].Desired, b)
	}
	for _, s := range total {
		if b.Has(s.Key) {
			out.Bind(s.Address, s.Amount)
		}
	}
	return out
}

// checkBudget returns an error if the budget has no room for one more container of the pod, although no other pod takes any of it.
func (o *outcome) checkBudget(d *policy.Desired, total policy.Settings) error {
	own := o.share(o.bound)
	claim := budget.Claim{Pod: o.pod.Policy, Desired: d, Total: total, Own: &own, Others: func(blkio.Address) budget.Granted { return budget.Granted{} }}
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
	own := o.share(total)
	for _, p := range own.Portions() {
		if most := b.Limits[p.Key]; p.Sum != 0 && p.Granted <= most {
			o.result.Notes = append(o.result.Notes, fmt.Sprintf("%s on %s counts for the budget of namespace %s: %s for all of its pods on the node",
				valueText(p.Key, p.Granted), p.Name, o.pod.Namespace, annotation.FormatAmount(p.Key, most)))
		}
	}
}
