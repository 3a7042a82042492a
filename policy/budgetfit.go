package policy

import (
	"cmp"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// fromBudget is the source of the limits of Fit.
var fromBudget = Source{Kind: FromRule, Name: "budgets"}

// Fit returns limits for a container that runs although Check has an error for it. With them, the budget is not exceeded by more
// than the floor on each disk. Its pod as a whole keeps its limits: where it has one already, Total does not replace that.
func (c *Claim) Fit() Settings {
	b := c.Pod.Budget()
	if b == nil {
		return nil
	}
	var out []Setting
	c.Desired.Charges(b, func(at blkio.Address, amount blkio.Amount) {
		now, most := c.Granted(at), b.Limits[at.Key]
		total, _ := c.Total.Get(at)
		bound := cmp.Or(now.Bound, total.Amount, blkio.Max)
		before, after := min(now.Own, bound), min(Plus(now.Own, amount), bound)
		isLimited := amount != blkio.Max || bound != blkio.Max
		if used := Plus(now.Others, before); !isLimited || after > before && Plus(now.Others, after) > most {
			room := max(most-min(used, most), c.Pod.policy.Floors.of(at.Key))
			out = append(out, Setting{blkio.Value{Address: at, Amount: min(amount, room)}, fromBudget})
		}
	})
	return NewSettings(out...)
}
