package policy

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// DiskRule has the policy's settings of weights for the disks that it matches.
type DiskRule struct {
	Match   DiskMatch
	Weights WeightMode
	Model   *blkio.CostModel // nil if the file states none
	QOS     *blkio.CostQOS   // nil if the file states none
	Follow  FollowMode
}

// FollowMode is when io.cost's model follows the mix of I/O.
type FollowMode string

const (
	// FollowAuto lets the model of a calibration with two limits follow the mix. The zero value means the same.
	FollowAuto FollowMode = "auto"
	// FollowOff keeps each model.
	FollowOff FollowMode = "off"
)

// WeightMode is what divides a disk by weights, and when.
type WeightMode string

const (
	// WeightsAuto enables io.cost while a container with a weight uses the disk.
	WeightsAuto WeightMode = "auto"
	// WeightsOn enables io.cost always.
	WeightsOn WeightMode = "on"
	// WeightsOff never enables it.
	WeightsOff WeightMode = "off"
	// WeightsBFQ sets the scheduler of the disk to bfq, which divides it in place of io.cost.
	WeightsBFQ WeightMode = "bfq"
)

// DiskMatch selects disks. A disk has to match each field that is set.
type DiskMatch struct {
	Names      []string // patterns of [path.Match] for the kernel's name, such as "nvme*"
	Models     []string // the same for the drive's model
	Rotational *bool
}

// Disk has the facts by which a rule can select a disk.
type Disk struct {
	Name, Model string
	Rotational  bool
}

// DiskRule returns the first rule that matches a disk. Without one it is WeightsAuto, with
// neither a model nor a QOS.
func (p *Policy) DiskRule(d Disk) DiskRule {
	for _, rule := range p.Disks {
		if rule.Match.selects(d) {
			return rule
		}
	}
	return DiskRule{Weights: WeightsAuto}
}

// HasBFQ reports whether a rule has bfq divide disks.
func (p *Policy) HasBFQ() bool {
	return slices.ContainsFunc(p.Disks, func(r DiskRule) bool { return r.Weights == WeightsBFQ })
}

func (m *DiskMatch) selects(d Disk) bool {
	return matchesAny(m.Names, d.Name) && matchesAny(m.Models, d.Model) && (m.Rotational == nil || *m.Rotational == d.Rotational)
}

// matchesAny reports whether a name matches a pattern, or there is no pattern.
func matchesAny(patterns []string, name string) bool {
	return len(patterns) == 0 || slices.ContainsFunc(patterns, func(pattern string) bool {
		matches, _ := matchName(pattern, name) // patterns were checked when the file was parsed
		return matches
	})
}

// matchName is [path.Match] with "/" as any other character: drives have it in their models.
func matchName(pattern, name string) (bool, error) {
	return path.Match(strings.ReplaceAll(pattern, "/", "\x00"), strings.ReplaceAll(name, "/", "\x00"))
}

// errReserve is the error for a share outside 0% to 90%.
var errReserve = errors.New("must be between 0% and 90%")

// parseShare parses "30%", a share of each disk.
func parseShare(text string) (blkio.Percent, error) {
	number, found := strings.CutSuffix(text, "%")
	if !found {
		return 0, errors.New("must be a percentage, such as 30%")
	}
	share, err := blkio.ParsePercent(number)
	if err == nil && share > maxReserve {
		err = errReserve
	}
	return share, err
}

// maxReserve leaves something to pods.
const maxReserve blkio.Percent = 9000

// FormatRule formats a rule with a model and latency targets for a disk as the field disks of a policy file. It matches all drives of
// the disk's model, or the disk's name if its model is not known, as for virtual disks.
func FormatRule(d Disk, model blkio.CostModel, qos blkio.CostQOS) string {
	list, name := "models", d.Model
	if name == "" {
		list, name = "names", d.Name
	}
	percent := func(p blkio.Percent) string { return strings.TrimSuffix(p.String(), ".00") }
	latency := func(d time.Duration) string { return strings.Replace(d.String(), "µs", "us", 1) } // ASCII
	// All of Go's escapes in a quoted text are YAML's.
	return fmt.Sprintf("disks:\n- match: {%s: [%q]}\n  model: {%s}\n  qos: {rpct: %s, rlat: %s, wpct: %s, wlat: %s, min: %s, max: %s}\n",
		list, literal(name), strings.NewReplacer("=", ": ", " ", ", ").Replace(model.String()),
		percent(qos.RPct), latency(qos.RLat), percent(qos.WPct), latency(qos.WLat), percent(qos.Min), percent(qos.Max))
}

// literal returns the pattern of [path.Match] that matches a text only. A file cannot have bytes
// that are not UTF-8, so any character matches these.
func literal(text string) string {
	var out strings.Builder
	for _, r := range text {
		switch {
		case r == utf8.RuneError:
			r = '?'
		case strings.ContainsRune(`\*?[`, r):
			out.WriteByte('\\')
		}
		out.WriteRune(r)
	}
	return out.String()
}
