package report

import (
	"bytes"
	"cmp"
	"fmt"

	"github.com/nri-blkio/nri-blkio/internal/terminal"
	"github.com/nri-blkio/nri-blkio/plugin/health"
	"github.com/nri-blkio/nri-blkio/plugin/inspect"
	"github.com/nri-blkio/nri-blkio/plugin/iocost"
)

// writeWeights writes the effect of weights, and the disks that io.cost is enabled on or should be.
func writeWeights(out *bytes.Buffer, w *health.Weights, isOnePod bool) {
	if w == nil {
		return
	}
	if len(w.Shares) > 0 {
		fmt.Fprintln(out, "\nWeights:")
		t := terminal.NewTable(out, "POD", "CONTAINER", "DISK", "WEIGHT", "SHARE NOW", "STATE")
		for _, s := range w.Shares {
			t.Row(PodName(s.Namespace, s.Pod), s.Container, cmp.Or(s.Disk, "none"), fmt.Sprint(s.Weight), shareText(s), withReason(effectText(s), s.Reason))
		}
		if isOnePod {
			t.Omit("POD")
		}
		t.Flush()
	}
	if w.SharesLeftOut > 0 {
		terminal.Notes(out, "note", fmt.Sprintf("%d weights on this node are left out, because the report is bounded", w.SharesLeftOut))
	}
	for _, skipped := range w.Skipped {
		terminal.Notes(out, "warning", skipped)
	}
	t := terminal.NewTable(out, "WEIGHTS ON", "MODEL FROM", "QOS FROM", "VRATE", "STATE")
	rows := 0
	for _, d := range w.Disks {
		if !d.Enabled && d.Error == "" {
			continue
		}
		rows++
		t.Row(d.Disk, d.Model, d.QOS, fmt.Sprintf("%.0f%%", d.Vrate), costText(d))
	}
	if rows > 0 {
		fmt.Fprintln(out)
		t.Flush()
	}
	if w.Promised != "" {
		terminal.Notes(out, "note", w.Promised)
	}
}

func shareText(s health.Share) string {
	if s.Reason != "" {
		return "none"
	}
	return share(s.Share)
}

func effectText(s health.Share) string {
	if s.Reason != "" {
		return "no effect"
	}
	if s.Scaled != 0 {
		return "ok, scaled to " + health.WeightText(s.Scaled) + " by the budget of namespace " + s.Namespace
	}
	return "ok"
}

func costText(d health.CostDisk) string {
	switch {
	case d.Error != "":
		return "failed: " + d.Error
	case d.By == iocost.BFQ:
		return "ok; by the scheduler bfq, which divides reads better than writes"
	case d.Kept != "":
		return "kept: " + d.Kept
	case d.Model == string(iocost.FromKernel):
		return "ok; " + inspect.GuessedModel
	case d.Follow != nil:
		return withReason("ok; model "+d.Follow.State, d.Follow.Reason)
	}
	return "ok"
}
