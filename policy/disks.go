package policy

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/validation/field"

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

// diskDocument is an element of disks in a policy file.
type diskDocument struct {
	// Which disks the rule is for: they have to match each field. Default: all disks.
	Match struct {
		// The kernel's name of a physical disk, such as `sda` or `nvme0n1`. Values: a list of patterns. Default: any.
		Names []string `json:"names"`
		// The drive's model, as `nri-blkio devices` shows it.
		// Values: a list of patterns. Default: any.
		Models []string `json:"models"`
		// `true`: the kernel takes the disk for a hard disk (`/sys/block/NAME/queue/rotational`). Default: any.
		Rotational *bool `json:"rotational"`
	} `json:"match"`
	// `auto`: io.cost is enabled while a container or pod with a weight for the disk runs, or with a [reserve] or [budgets of weights]. `on`:
	// always. `off`: never. `bfq`: the scheduler [bfq] divides the disk instead; `match` is required.
	// Values: `auto`, `on`, `off`, `bfq`. Default: `auto`.
	Weights scalar `json:"weights"`
	// io.cost's linear model: all six fields. Default: the saved calibration, else udev's, else the kernel's.
	Model *modelDocument `json:"model"`
	// Latency targets, and the range in which io.cost may change its rate to meet them. Default: that of the model's origin.
	QOS *qosDocument `json:"qos"`
	// `auto`: the model [follows the mix] if the calibration shows a limit of operations and one of bytes. `off`: it stays.
	// Values: `auto`, `off`. Default: `auto`.
	Follow scalar `json:"follow"`
}

type modelDocument struct {
	// Bytes read per second. Values: a quantity from `4Ki`.
	Rbps scalar `json:"rbps"`
	// Sequential reads of 4 KiB per second. Values: a quantity from 1, below 2^32-1.
	RSeqIOPS scalar `json:"rseqiops"`
	// Random reads of 4 KiB per second. Values: a quantity from 1, below 2^32-1.
	RRandIOPS scalar `json:"rrandiops"`
	// Bytes written per second. Values: a quantity from `4Ki`.
	Wbps scalar `json:"wbps"`
	// Sequential writes of 4 KiB per second. Values: a quantity from 1, below 2^32-1.
	WSeqIOPS scalar `json:"wseqiops"`
	// Random writes of 4 KiB per second. Values: a quantity from 1, below 2^32-1.
	WRandIOPS scalar `json:"wrandiops"`
}

type qosDocument struct {
	// The percentile of the latency of reads that is compared with `rlat`. 0: none.
	// Values: 0 to 100, two decimals, without `%`. Default: `0`.
	RPct scalar `json:"rpct"`
	// The latency target of reads, such as `5ms`. Required with `rpct`. Without percentiles the period of io.cost is twice
	// the larger target. If neither `rlat` nor `wlat` is written, both are half the time that the model needs for 64 random
	// operations, from 5 to 250 ms, and 25 ms with the kernel's model.
	// Values: a duration in whole microseconds, up to about 71 minutes. Default: by the model.
	RLat scalar `json:"rlat"`
	// The same for writes and `wlat`.
	// Values: 0 to 100, two decimals, without `%`. Default: `0`.
	WPct scalar `json:"wpct"`
	// The latency target of writes.
	// Values: a duration in whole microseconds, up to about 71 minutes. Default: by the model.
	WLat scalar `json:"wlat"`
	// The lowest rate, in percent of the model.
	// Values: 1 to 10000, two decimals, without `%`. Default: `100`.
	Min scalar `json:"min"`
	// The highest rate, in percent of the model. Values: 1 to 10000, two decimals, without `%`. Default: `100`.
	Max scalar `json:"max"`
}

func (d *diskDocument) rule(v *validator, at *field.Path) DiskRule {
	match := at.Child("match")
	r := DiskRule{
		Match:   DiskMatch{Names: d.Match.Names, Models: d.Match.Models, Rotational: d.Match.Rotational},
		Weights: WeightsAuto,
	}
	v.patterns(match.Child("names"), d.Match.Names)
	v.patterns(match.Child("models"), d.Match.Models)
	if d.Weights != "" {
		r.Weights = oneOf(v, at.Child("weights"), WeightMode(onOff(d.Weights)), WeightsAuto, WeightsOn, WeightsOff, WeightsBFQ)
	}
	if d.Follow != "" {
		r.Follow = oneOf(v, at.Child("follow"), FollowMode(onOff(d.Follow)), FollowAuto, FollowOff)
	}
	if d.Model != nil {
		r.Model = d.Model.model(v, at.Child("model"))
	}
	if d.QOS != nil {
		r.QOS = d.QOS.qos(v, at.Child("qos"))
	}
	if r.Weights == WeightsBFQ {
		d.checkBFQ(v, at)
	}
	return r
}

// onOff returns the words on and off for the booleans as which YAML reads them without quotes.
func onOff(word scalar) string {
	return cmp.Or(map[scalar]string{"true": "on", "false": "off"}[word], string(word))
}

// checkBFQ validates a rule with weights: bfq. It changes the scheduler of disks, so it must select them.
func (d *diskDocument) checkBFQ(v *validator, at *field.Path) {
	if len(d.Match.Names) == 0 && len(d.Match.Models) == 0 && d.Match.Rotational == nil {
		v.errs = append(v.errs, field.Required(at.Child("match"), "weights: bfq changes the scheduler of disks, so the rule has to select them"))
	}
	if d.Model != nil || d.QOS != nil || d.Follow != "" {
		v.errs = append(v.errs, field.Forbidden(at, "model, qos and follow are settings of io.cost, which weights: bfq does not use"))
	}
}

// model validates a model. All of its values have to be there: a part of the kernel's guess
// beside measured values would be of no disk.
func (d *modelDocument) model(v *validator, at *field.Path) *blkio.CostModel {
	const leastBps = 4096 // of the kernel: a page in a second
	value := func(name string, k blkio.Key, text scalar, least blkio.Amount) uint64 {
		if text == "" {
			v.errs = append(v.errs, field.Required(at.Child(name), "a model has all six values"))
			return 0
		}
		return uint64(v.quantity(at.Child(name), k, text, least))
	}
	return &blkio.CostModel{
		Rbps:      value("rbps", blkio.Rbps, d.Rbps, leastBps),
		RSeqIOPS:  value("rseqiops", blkio.Riops, d.RSeqIOPS, 1),
		RRandIOPS: value("rrandiops", blkio.Riops, d.RRandIOPS, 1),
		Wbps:      value("wbps", blkio.Wbps, d.Wbps, leastBps),
		WSeqIOPS:  value("wseqiops", blkio.Wiops, d.WSeqIOPS, 1),
		WRandIOPS: value("wrandiops", blkio.Wiops, d.WRandIOPS, 1),
	}
}

// qos validates latency targets. Fields that are left out have no effect: the percentile is 0, and the rate is
// exactly that of the model.
func (d *qosDocument) qos(v *validator, at *field.Path) *blkio.CostQOS {
	const whole blkio.Percent = 10000
	q := &blkio.CostQOS{
		RPct: v.percent(at.Child("rpct"), d.RPct, 0), RLat: v.latency(at.Child("rlat"), d.RLat),
		WPct: v.percent(at.Child("wpct"), d.WPct, 0), WLat: v.latency(at.Child("wlat"), d.WLat),
		Min: v.percent(at.Child("min"), d.Min, whole), Max: v.percent(at.Child("max"), d.Max, whole),
	}
	for _, target := range []struct {
		name string
		pct  blkio.Percent
		lat  time.Duration
	}{{"rlat", q.RPct, q.RLat}, {"wlat", q.WPct, q.WLat}} {
		if target.pct > 0 && target.lat == 0 {
			v.errs = append(v.errs, field.Required(at.Child(target.name), "a percentile needs its latency"))
		}
	}
	if err := q.Check(); err != nil {
		v.errs = append(v.errs, field.Invalid(at, q.String(), err.Error()))
	}
	return q
}

func (v *validator) patterns(at *field.Path, patterns []string) {
	for i, pattern := range patterns {
		if _, err := matchName(pattern, ""); err != nil {
			v.errs = append(v.errs, field.Invalid(at.Index(i), pattern, "invalid pattern: write * for any characters, ? for one"))
		}
	}
}

func (v *validator) percent(at *field.Path, text scalar, missing blkio.Percent) blkio.Percent {
	if text == "" {
		return missing
	}
	p, err := blkio.ParsePercent(string(text))
	if err != nil {
		v.errs = append(v.errs, field.Invalid(at, string(text), "must be a percentage with at most two decimals, without %"))
	}
	return p
}

func (v *validator) latency(at *field.Path, text scalar) time.Duration {
	if text == "" {
		return 0
	}
	d, err := time.ParseDuration(string(text))
	if err != nil {
		v.errs = append(v.errs, field.Invalid(at, string(text), "must be a duration, such as 5ms"))
	}
	return d
}
