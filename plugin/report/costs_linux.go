package report

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/internal/terminal"
	"github.com/nri-blkio/nri-blkio/plugin/inspect"
)

// writeCosts writes io.cost of each physical disk by a policy, and warnings about the models.
func writeCosts(out *bytes.Buffer, costs []inspect.Cost, policyName, promised string) {
	if len(costs) == 0 {
		return
	}
	fmt.Fprintf(out, "\nWeights need io.cost. Policy: %s\n", terminal.Escape(policyName))
	t := terminal.NewTable(out, "DISK", "IO.COST", "MODEL FROM", "QOS FROM", "QOS")
	var warnings []string
	disks := map[string][]string{} // by warning
	for i := range costs {
		c := &costs[i]
		state := string(c.State)
		if c.By != "" {
			state += " by " + c.By
		}
		t.Row(c.Disk, withReason(state, c.Reason), string(c.Model.Origin), string(c.QOS.Origin), targetsText(c.Targets()))
		if c.Warning == "" {
			continue
		}
		if disks[c.Warning] == nil {
			warnings = append(warnings, c.Warning)
		}
		disks[c.Warning] = append(disks[c.Warning], c.Disk)
	}
	t.Flush()
	if promised != "" {
		terminal.Notes(out, "note", promised)
	}
	for _, w := range warnings {
		terminal.Notes(out, "warning", strings.Join(disks[w], ", ")+": "+w)
	}
}

// targetsText returns "50-150%, reads 95% in 5ms, writes 95% in 10ms". A percentile of 0 takes no
// part.
func targetsText(q *blkio.CostQOS) string {
	if q == nil {
		return ""
	}
	percent := blkio.Percent.Short
	out := percent(q.Max)
	if q.Min != q.Max {
		out = strings.TrimSuffix(percent(q.Min), "%") + "-" + out
	}
	if q.RPct > 0 {
		out += fmt.Sprintf(", reads %s in %v", percent(q.RPct), q.RLat)
	}
	if q.WPct > 0 {
		out += fmt.Sprintf(", writes %s in %v", percent(q.WPct), q.WLat)
	}
	return out
}
