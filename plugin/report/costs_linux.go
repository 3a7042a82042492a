package report

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/nri-blkio/nri-blkio/internal/terminal"
	"github.com/nri-blkio/nri-blkio/plugin/inspect"
)

func writeCosts(out *bytes.Buffer, costs []inspect.Cost, policyName, promised string) {
	if len(costs) == 0 {
		return
	}
	fmt.Fprintf(out, "\nWeights need io.cost. Policy: %s\n", terminal.Escape(policyName))
	t := terminal.NewTable(out, "DISK", "IO.COST", "MODEL FROM", "QOS FROM")
	var warnings []string
	disks := map[string][]string{} // by warning
	for i := range costs {
		c := &costs[i]
		state := string(c.State)
		if c.By != "" {
			state += " by " + c.By
		}
		t.Row(c.Disk, withReason(state, c.Reason), string(c.Model.Origin), string(c.QOS.Origin))
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
