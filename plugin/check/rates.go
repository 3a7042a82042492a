package check

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/record"
	"github.com/nri-blkio/nri-blkio/policy"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// noteLimits adds notes on the effect of the limits of one cgroup. The backstop is none of them: it follows from those of the containers.
func (o *outcome) noteLimits(rec *record.Record) {
	requested := rec.Settings.Where(func(s policy.Setting) bool {
		return s.Key.IsRate() && s.Amount != blkio.Max && s.Source.Kind != policy.FromBackstop
	})
	notes := &o.result.Notes
	limits := requested.DevLimits()
	for _, dev := range slices.SortedFunc(maps.Keys(limits), blkio.Dev.Compare) {
		for _, keys := range [][2]blkio.Key{{blkio.Rbps, blkio.Riops}, {blkio.Wbps, blkio.Wiops}} {
			if text := operationsText(keys, limits[dev]); text != "" {
				*notes = append(*notes, text)
			}
		}
	}
	for _, s := range requested {
		if above := s.Burst.Rate - s.Amount; !s.Burst.IsZero() {
			*notes = append(*notes, fmt.Sprintf("%s%s on %s: %s above the limit in a whole burst, after %.0f seconds without use",
				s.Key, annotation.BurstSuffix, rec.Disks[s.Dev], annotation.FormatAmount(s.Key, above*blkio.Amount(s.Burst.Seconds)), float64(above)*float64(s.Burst.Seconds)/float64(s.Amount)))
		}
	}
}

func valueText(k blkio.Key, amount blkio.Amount) string {
	return k.String() + "=" + annotation.FormatAmount(k, amount)
}

// operationsText returns the operations per second that limits of one direction allow, for common block sizes.
// It is "" without a limit of bytes.
func operationsText(keys [2]blkio.Key, limits blkio.Limits) string {
	bps, iops := limits[keys[0]], limits[keys[1]]
	if bps == blkio.Unset {
		return ""
	}
	name := valueText(keys[0], bps)
	if iops != blkio.Unset {
		name += " " + valueText(keys[1], iops)
	}
	var parts []string
	for _, block := range []struct {
		size float64
		name string
	}{{4 << 10, "4K"}, {16 << 10, "16K"}, {64 << 10, "64K"}, {1 << 20, "1M"}} {
		rate := float64(bps) / block.size
		if iops != blkio.Unset {
			rate = min(rate, float64(iops))
		}
		parts = append(parts, operations(rate)+" of "+block.name)
	}
	parts[0] = strings.Replace(parts[0], " of ", " operations/s of ", 1)
	return name + " is " + strings.Join(parts[:len(parts)-1], ", ") + " or " + parts[len(parts)-1]
}

// operations formats a rate: whole from 10 on, with two digits below.
func operations(rate float64) string {
	if rate >= 10 {
		return strconv.FormatFloat(rate, 'f', 0, 64)
	}
	return strconv.FormatFloat(rate, 'g', 2, 64)
}
