package report

import (
	"bytes"
	"cmp"
	"fmt"

	"github.com/nri-blkio/nri-blkio/internal/terminal"
	"github.com/nri-blkio/nri-blkio/plugin/health"
	"github.com/nri-blkio/nri-blkio/plugin/inspect"
)

// writeBudgets writes what the pods of namespaces are granted of their budgets; nil for no budgets.
func writeBudgets(out *bytes.Buffer, b *health.Budgets) {
	if b == nil || len(b.Sums) == 0 {
		return
	}
	fmt.Fprintln(out, "\nBudgets:")
	t := terminal.NewTable(out, "NAMESPACE", "DISK", "KEY", "GRANTED", "BUDGET", "PODS", "STATE")
	for i := range b.Sums {
		s := &b.Sums[i]
		state := "ok"
		switch {
		case s.Over:
			state = "over the budget"
		case s.Reason != "":
			state = "not kept: " + s.Reason
		case s.Factor != 0 && s.Factor != 1:
			state = "scaled to " + share(s.Factor)
		}
		if s.Undecided > 0 {
			state += ", without " + inspect.Count(s.Undecided, "pod") + " not decided yet"
		}
		t.Row(cmp.Or(s.Namespace, "class/"+s.Class), s.Disk, s.Key, s.Granted, s.Budget, fmt.Sprint(s.Pods), state)
	}
	t.Flush()
	if b.LeftOut > 0 {
		terminal.Notes(out, "note", fmt.Sprintf("%d budgets are left out, because the report is bounded", b.LeftOut))
	}
}
