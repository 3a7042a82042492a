package blkio

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The control files of io.cost. Only the root cgroup has them.
const (
	IOCostModel = "io.cost.model"
	IOCostQOS   = "io.cost.qos"
)

// CostModel is io.cost's linear model of a disk: the bytes, and the operations of 4 KiB, that the disk can do
// in a second. io.cost charges an operation with a base cost, which differs between sequential and random, and
// with a cost for each page.
type CostModel struct {
	Rbps, RSeqIOPS, RRandIOPS uint64
	Wbps, WSeqIOPS, WRandIOPS uint64
}

// costModelKeys are the kernel's names, in its order.
var costModelKeys = [...]string{"rbps", "rseqiops", "rrandiops", "wbps", "wseqiops", "wrandiops"} // constant

func (m *CostModel) fields() [len(costModelKeys)]*uint64 {
	return [...]*uint64{&m.Rbps, &m.RSeqIOPS, &m.RRandIOPS, &m.Wbps, &m.WSeqIOPS, &m.WRandIOPS}
}

// Field returns the value with the kernel's name, or nil.
func (m *CostModel) Field(name string) *uint64 {
	if i := slices.Index(costModelKeys[:], name); i >= 0 {
		return m.fields()[i]
	}
	return nil
}

// Check returns an error for a value that the kernel would take for no cost at all: 0. The kernel computes the
// cost of a page from bytes per second. With fewer than a page per second one operation would take longer than
// io.cost's periods. The kernel rounds up to whole pages, where a value next to 2^64 becomes 0. Kernels without
// the commit "blk-iocost: fix divide by 0 error in calc_lcoefs()" of 2023 divide by it.
//
// Source: calc_lcoefs in block/blk-iocost.c.
func (m CostModel) Check() error {
	for i, v := range m.fields() {
		least := uint64(1)
		if strings.HasSuffix(costModelKeys[i], "bps") {
			least = costPage
		}
		if *v < least {
			return fmt.Errorf("%s=%d is too small (minimum %d)", costModelKeys[i], *v, least)
		}
		if *v > math.MaxInt64 {
			return fmt.Errorf("%s=%d is too large (maximum %d)", costModelKeys[i], *v, uint64(math.MaxInt64))
		}
	}
	return nil
}

// costPage is IOC_PAGE_SIZE of block/blk-iocost.c, in bytes.
const costPage = 4096

// String formats the values as a write to io.cost.model takes them.
func (m CostModel) String() string {
	words := make([]string, len(costModelKeys))
	for i, v := range m.fields() {
		words[i] = costModelKeys[i] + "=" + strconv.FormatUint(*v, 10)
	}
	return strings.Join(words, " ")
}

// Percent is a number of hundredths of a percent: 9550 is 95.50 %.
type Percent uint32

// String formats the percentage as the kernel does, "95.50".
func (p Percent) String() string { return fmt.Sprintf("%d.%02d", p/100, p%100) }

// Short formats the percentage as people write it, "95.5%".
func (p Percent) Short() string {
	return strings.TrimSuffix(strings.TrimRight(p.String(), "0"), ".") + "%"
}

// ParsePercent parses a percentage with at most two decimals.
func ParsePercent(s string) (Percent, error) {
	whole, decimals, hasPoint := strings.Cut(s, ".")
	if hasPoint && (decimals == "" || len(decimals) > 2) {
		return 0, fmt.Errorf("%.20q has not one or two decimals", s)
	}
	if whole == "" {
		return 0, fmt.Errorf("%.20q is no percentage", s)
	}
	n, err := strconv.ParseUint(whole+(decimals + "00")[:2], 10, 32)
	if err != nil {
		return 0, fmt.Errorf("%.20q is no percentage", s)
	}
	return Percent(n), nil
}

// CostQOS decides how hard io.cost works a disk. It has a percentage of the requests, RPct of reads and WPct of
// writes, and their latencies RLat and WLat. While that percentage takes longer, io.cost lowers the rate at
// which it gives out cost (vrate), down to Min percent of the model. Otherwise it raises the rate, up to Max. A
// percentile of 0 has no effect.
type CostQOS struct {
	RPct, WPct Percent
	RLat, WLat time.Duration // whole microseconds
	Min, Max   Percent
}

// The bounds of the kernel: VRATE_MIN_PPM, VRATE_MAX_PPM, and 32 bits of microseconds
// (block/blk-iocost.c).
const (
	minVrate   Percent = 100
	maxVrate   Percent = 1000000
	maxPercent Percent = 10000
	maxCostLat         = math.MaxUint32 * time.Microsecond
)

// Check returns an error for a value that the kernel refuses or changes.
func (q CostQOS) Check() error {
	switch {
	case q.RPct > maxPercent:
		return fmt.Errorf("rpct=%s is above 100", q.RPct)
	case q.WPct > maxPercent:
		return fmt.Errorf("wpct=%s is above 100", q.WPct)
	case q.Min < minVrate || q.Min > maxVrate:
		return fmt.Errorf("min=%s is not within %s..%s", q.Min, minVrate, maxVrate)
	case q.Max < minVrate || q.Max > maxVrate:
		return fmt.Errorf("max=%s is not within %s..%s", q.Max, minVrate, maxVrate)
	case q.Min > q.Max:
		return fmt.Errorf("min=%s is above max=%s", q.Min, q.Max)
	}
	for _, lat := range []struct {
		name string
		d    time.Duration
	}{{"rlat", q.RLat}, {"wlat", q.WLat}} {
		if lat.d < 0 || lat.d > maxCostLat || lat.d%time.Microsecond != 0 {
			return fmt.Errorf("%s=%v is not a number of microseconds within 32 bits", lat.name, lat.d)
		}
	}
	return nil
}

// String formats the values as a write to io.cost.qos takes them.
func (q CostQOS) String() string {
	return fmt.Sprintf("rpct=%s rlat=%d wpct=%s wlat=%d min=%s max=%s",
		q.RPct, q.RLat.Microseconds(), q.WPct, q.WLat.Microseconds(), q.Min, q.Max)
}

// Period returns the time after which io.cost measures the use of each cgroup, and divides the disk again. It
// follows from the latency targets, also where their percentiles are 0.
//
// Source: ioc_refresh_period_us in block/blk-iocost.c.
func (q CostQOS) Period() time.Duration {
	percentile, target := q.RPct, q.RLat
	if q.WLat > q.RLat {
		percentile, target = q.WPct, q.WLat
	}
	targets := time.Duration(2)
	if percentile > 0 {
		targets = max(targets, time.Duration(maxPercent-percentile)/500)
	}
	return min(max(targets*target, minCostPeriod), maxCostPeriod)
}

// The bounds of the kernel: MIN_PERIOD and MAX_PERIOD in block/blk-iocost.c.
const (
	minCostPeriod = time.Millisecond
	maxCostPeriod = time.Second
)

// CostModelLine is a device's line of io.cost.model.
type CostModelLine struct {
	IsUser bool // a program has set the model; otherwise the kernel has chosen it
	Model  CostModel
}

// CostQOSLine is a device's line of io.cost.qos.
type CostQOSLine struct {
	Enabled bool // io.cost divides the device; io.weight has an effect on such devices only
	IsUser  bool // a program has set the values; otherwise the kernel has chosen them
	QOS     CostQOS
}

// ParseIOCostModel parses io.cost.model of the root cgroup. On a device that is not listed
// io.cost was never set up.
//
//	8:16 ctrl=auto model=linear rbps=2706339840 rseqiops=89698 rrandiops=110036 wbps=1063126016 wseqiops=135560 wrandiops=130734
//	(1)  (2)       (3)          (4)
//
//	(1) device number
//	(2) "user" if a program has set the model
//	(3) the kind of the model; "linear" is the only one
//	(4) bytes, sequential and random operations per second, of reads and of writes
//
// Source: Documentation/admin-guide/cgroup-v2.rst, "io.cost.model".
func ParseIOCostModel(data string) (map[Dev]CostModelLine, error) {
	return parseDevLines(IOCostModel, data, CostModelLine{}, func(to *CostModelLine, name, value string) (err error) {
		if name == "ctrl" {
			to.IsUser, err = parseCtrl(value)
		} else if field := to.Model.Field(name); field != nil {
			*field, err = strconv.ParseUint(value, 10, 64)
		}
		return err
	})
}

// ParseIOCostQOS parses io.cost.qos of the root cgroup. On a device that is not listed
// io.cost was never set up, and is disabled.
//
//	8:16 enable=1 ctrl=auto rpct=95.00 rlat=75000 wpct=95.00 wlat=150000 min=50.00 max=150.00
//	(1)  (2)      (3)       (4)        (5)                               (6)
//
//	(1) device number
//	(2) 1 if io.cost is enabled
//	(3) "user" if a program has set the values
//	(4) percent
//	(5) microseconds
//	(6) percent of the model's rate
//
// Source: Documentation/admin-guide/cgroup-v2.rst, "io.cost.qos".
func ParseIOCostQOS(data string) (map[Dev]CostQOSLine, error) {
	return parseDevLines(IOCostQOS, data, CostQOSLine{}, (*CostQOSLine).set)
}

// ParseCost parses and checks a model and a QOS without a device, as they are written for one.
func ParseCost(model, qos string) (CostModel, CostQOS, error) {
	const device = "0:0 " // the parsers take whole lines
	models, err := ParseIOCostModel(device + strings.TrimSpace(model))
	if err != nil {
		return CostModel{}, CostQOS{}, err
	}
	lines, err := ParseIOCostQOS(device + strings.TrimSpace(qos))
	if err != nil {
		return CostModel{}, CostQOS{}, err
	}
	m, q := models[Dev{}].Model, lines[Dev{}].QOS
	return m, q, errors.Join(m.Check(), q.Check())
}

func (l *CostQOSLine) set(name, value string) (err error) {
	switch name {
	case "enable":
		if value != "0" && value != "1" {
			return errors.New("not 0 or 1")
		}
		l.Enabled = value == "1"
	case "ctrl":
		l.IsUser, err = parseCtrl(value)
	case "rpct":
		l.QOS.RPct, err = ParsePercent(value)
	case "wpct":
		l.QOS.WPct, err = ParsePercent(value)
	case "min":
		l.QOS.Min, err = ParsePercent(value)
	case "max":
		l.QOS.Max, err = ParsePercent(value)
	case "rlat":
		l.QOS.RLat, err = parseMicroseconds(value)
	case "wlat":
		l.QOS.WLat, err = parseMicroseconds(value)
	}
	return err
}

func parseCtrl(s string) (isUser bool, err error) {
	if s != "auto" && s != "user" {
		return false, errors.New("not auto or user")
	}
	return s == "user", nil
}

func parseMicroseconds(s string) (time.Duration, error) {
	n, err := strconv.ParseUint(s, 10, 32)
	return time.Duration(n) * time.Microsecond, err
}
