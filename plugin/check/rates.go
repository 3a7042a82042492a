package check

import (
	"cmp"
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

// limited is a cgroup of a pod with the limits that were requested for it.
type limited struct {
	container string // "" for the pod as a whole
	settings  policy.Settings
	disks     map[blkio.Dev]string
}

// newLimited returns the requested limits of a record. The backstop is none of them: it follows
// from those of the containers.
func newLimited(rec *record.Record) limited {
	requested := rec.Settings.Where(func(s policy.Setting) bool {
		return s.Key.IsRate() && s.Amount != blkio.Max && s.Source.Kind != policy.FromBackstop
	})
	return limited{container: rec.Container, settings: requested, disks: rec.Disks}
}

// noteLimits adds notes on the effect of the limits of one cgroup, and on those that the disk's model cannot
// reach.
func (c *Checker) noteLimits(r *Result, l *limited) {
	for _, dev := range slices.SortedFunc(maps.Keys(l.settings.DevLimits()), blkio.Dev.Compare) {
		limits := l.settings.DevLimits()[dev]
		for _, keys := range [][2]blkio.Key{{blkio.Rbps, blkio.Riops}, {blkio.Wbps, blkio.Wiops}} {
			if text := operationsText(keys, limits); text != "" {
				r.Notes = append(r.Notes, text)
			}
		}
	}
	for _, s := range l.settings {
		if above := s.Burst.Rate - s.Amount; !s.Burst.IsZero() {
			r.Notes = append(r.Notes, fmt.Sprintf("%s%s on %s: %s above the limit in a whole burst, after %.0f seconds without use",
				s.Key, annotation.BurstSuffix, l.disks[s.Dev], annotation.FormatAmount(s.Key, above*blkio.Amount(s.Burst.Seconds)), float64(above)*float64(s.Burst.Seconds)/float64(s.Amount)))
		}
		if most, known := c.Node.capacityOf(s.Dev, s.Key); known && float64(s.Amount) > most.rate {
			r.Notes = append(r.Notes, fmt.Sprintf("%s on %s has no effect: %s", valueText(s.Key, s.Amount), l.disks[s.Dev], most.text(s.Key, l.disks[s.Dev])))
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

// place is a key of a disk.
type place struct {
	dev blkio.Dev
	key blkio.Key
}

// sum is the sum of the limits of manifests' containers at a place.
type sum struct {
	disk       string
	rate       float64
	containers int
}

// Sums returns notes on the disks and keys where the limits of the pods together exceed the rates of the disk,
// if all pods ran on this node. Each pod counts once, and so does a template of pods.
func (c *Checker) Sums(pods []Result) []string {
	all := map[place]sum{}
	for i := range pods {
		for at, s := range pods[i].sums() {
			s.rate, s.containers = s.rate+all[at].rate, s.containers+all[at].containers
			all[at] = s
		}
	}
	var notes []string
	for _, at := range slices.SortedFunc(maps.Keys(all), func(a, b place) int {
		return cmp.Or(a.dev.Compare(b.dev), cmp.Compare(a.key, b.key))
	}) {
		s := all[at]
		most, known := c.Node.capacityOf(at.dev, at.key)
		if !known || s.containers < 2 || s.rate <= most.rate {
			continue
		}
		total := operations(s.rate)
		if at.key.IsBytes() {
			total = bytesText(s.rate)
		}
		notes = append(notes, fmt.Sprintf("%s of %d containers on %s is %s in total, but %s", at.key, s.containers, s.disk, total, most.text(at.key, s.disk)))
	}
	return notes
}

// sums returns the limits at each place for the containers of a pod that run together. That is the sum of their
// limits, or the limit of the pod if it is lower.
func (r *Result) sums() map[place]sum {
	out := map[place]sum{}
	for _, l := range r.limits {
		for _, s := range l.settings {
			at := place{s.Dev, s.Key}
			now, found := out[at]
			if l.container != "" {
				out[at] = sum{l.disks[s.Dev], now.rate + float64(s.Amount), now.containers + 1}
			} else if !found || float64(s.Amount) < now.rate {
				out[at] = sum{l.disks[s.Dev], float64(s.Amount), max(now.containers, 1)}
			}
		}
	}
	return out
}
