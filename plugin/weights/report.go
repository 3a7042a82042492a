package weights

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"math"
	"path"
	"slices"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/health"
	"github.com/nri-blkio/nri-blkio/plugin/iocost"
	"github.com/nri-blkio/nri-blkio/plugin/shares"
)

// divided is how io.cost divides the disks.
type divided struct {
	shares.Result
	root map[blkio.Dev]blkio.Stat // of the root cgroup
}

// maxSkipped is the largest number of cgroups that the report names as skipped.
const maxSkipped = 20

func (n *divided) skippedTexts() (out []string) {
	for i, s := range n.Skipped {
		if i == maxSkipped {
			return append(out, fmt.Sprintf("and %d more cgroups", len(n.Skipped)-i))
		}
		out = append(out, s.String())
	}
	return out
}

func (n *divided) reasons(weighted map[string]blkio.Weights) map[string]string {
	out := map[string]string{}
	for _, s := range n.Skipped {
		for cgroup := range weighted {
			if s.Has(cgroup) {
				out[cgroup] = s.String()
			}
		}
	}
	return out
}

// report returns the state of weights. For the disks it has the values of the kernel.
func report(d *Demand, states []iocost.State, now *divided) *health.Weights {
	out := &health.Weights{Skipped: now.skippedTexts()}
	effects, weighted := effects{}, d.given()
	skipped := now.reasons(weighted)
	for i := range states {
		s := &states[i]
		disk := costDisk(s)
		if !d.Complete && s.Works && !s.Enabled && !s.IsForeign(blkio.IOCostQOS) {
			disk.Kept = d.Unknown
		}
		if disk.Enabled && s.By == "" {
			disk.Vrate = float64(now.root[s.Disk.Dev].CostVrate) / 100
		}
		out.Disks = append(out.Disks, disk)
		on := newEffect(s, now.Shares[s.Disk.Dev], weighted)
		on.skipped = skipped
		switch err := now.Failed[s.Disk.Dev]; {
		case on.reason != "":
		case err != nil:
			on.reason = err.Error()
		case now.Shares == nil:
			on.reason = "the cgroups of pods cannot be read"
		}
		effects[s.Disk.Dev] = on
		if len(s.Below) == 0 { // a guarantee holds on the disks below
			out.Budgets = append(out.Budgets, now.budgetSums(s.Disk, on)...)
		}
	}
	slices.SortStableFunc(out.Budgets, func(a, b health.BudgetSum) int {
		return cmp.Or(cmp.Compare(min(len(b.Reason), 1), min(len(a.Reason), 1)), cmp.Compare(a.Factor, b.Factor))
	})
	out.Shares, out.SharesLeftOut = effects.shares(d)
	return out
}

// reportUnread returns the state of weights as long as io.cost could not be read.
func reportUnread(d *Demand) *health.Weights {
	out := &health.Weights{}
	effects := effects{}
	for i := range d.Weighted {
		for _, disk := range d.Weighted[i].Disks {
			effects[disk.Dev] = effect{known: true, reason: "the state of io.cost cannot be read"}
		}
	}
	out.Shares, out.SharesLeftOut = effects.shares(d)
	return out
}

func costDisk(s *iocost.State) health.CostDisk {
	out := health.CostDisk{Disk: s.Disk.Name, Dev: s.Disk.Dev.String(), By: s.By, Enabled: s.Works, Reason: s.Reason}
	if s.Err != nil {
		out.Error = s.Err.Error()
	}
	if !s.Works || s.By != "" {
		return out
	}
	_, model := s.CostModel()
	_, qos := s.CostQOS()
	out.Model, out.QOS = string(model), string(qos)
	return out
}

// effect is the effect of weights on one disk.
type effect struct {
	known   bool
	reason  string                   // why they have none
	chosen  bool                     // the operator has decided so
	shares  map[string]*shares.Share // of the cgroups with a weight, by path
	skipped map[string]string        // why cgroups with a weight could not be read, by path
}

func newEffect(s *iocost.State, all []shares.Share, weighted map[string]blkio.Weights) effect {
	out := effect{known: true, reason: s.Reason, chosen: s.Chosen}
	switch {
	case s.Works && s.Enabled && (s.By == "" || s.Err == nil):
		out.reason = ""
	case s.Err != nil:
		out.reason = s.Err.Error()
	case out.reason == "":
		out.reason = notEnabled
	}
	out.shares = map[string]*shares.Share{}
	for i := range all {
		if _, found := weighted[all[i].Path]; found {
			out.shares[all[i].Path] = &all[i]
		}
	}
	return out
}

const notEnabled = "io.cost is not enabled on the disk"

// of returns the share of the disk that a cgroup is due, or why its weight has no effect.
func (e effect) of(cgroup string) (due *shares.Share, reason string) {
	switch share, found := e.shares[cgroup]; {
	case !e.known:
		return nil, "the disk is not there"
	case e.reason != "":
		return nil, e.reason
	case e.skipped[cgroup] != "":
		return nil, e.skipped[cgroup]
	case !found:
		return nil, "its cgroup is not below that of all pods"
	default:
		return share, ""
	}
}

func (n *divided) budgetSums(disk blkio.Disk, on effect) (out []health.BudgetSum) {
	for i := range n.Used[disk.Dev] {
		u := &n.Used[disk.Dev][i]
		sum := health.BudgetSum{Namespace: u.Namespace, Class: u.Class, Disk: disk.Name, Dev: disk.Dev.String(), Pods: u.Pods}
		if u.Sum > 0 {
			sum.Factor = u.Factor()
		}
		if u.Weight != 0 && on.reason == "" {
			sum.Key, sum.Granted, sum.Budget = blkio.DiskWeight.String(), health.WeightText(u.Sum), fmt.Sprint(u.Weight)
			out = append(out, sum)
		}
		if u.Guarantee == 0 {
			continue
		}
		sum.Reason, sum.Chosen = on.reason, on.chosen
		switch {
		case sum.Reason != "":
		case n.Squeezed[disk.Dev]:
			sum.Reason = "cgroups outside pods have such large weights that pods get less than the reserve leaves"
		case u.IsSplit:
			sum.Reason = "pods below several cgroups named kubepods use the disk, which divide it evenly"
		}
		sum.Key, sum.Granted, sum.Budget = health.KeyGuarantee, "0%", u.Guarantee.Short()
		if sum.Reason == "" {
			if sum.Granted = blkio.Percent(math.Round(u.Granted * 100 * 100)).Short(); !u.IsKept() {
				sum.Reason = "weights are whole numbers from 1 on, so the pods with the least weights get more than they are due"
			}
		}
		out = append(out, sum)
	}
	return out
}

// notKept returns an error for the guarantees that are not kept, unless the operator has decided so.
func notKept(sums []health.BudgetSum) error {
	sums = slices.DeleteFunc(slices.Clone(sums), func(s health.BudgetSum) bool { return s.Reason == "" || s.Chosen })
	if len(sums) == 0 {
		return nil
	}
	text := ""
	if len(sums) > 1 {
		text = fmt.Sprintf(" (and %d more guarantees)", len(sums)-1)
	}
	return fmt.Errorf("the guarantee of %s is not kept on disk %s%s: %s", sums[0].Group(), sums[0].Disk, text, sums[0].Reason)
}

func (k *Keeper) nameOf(cgroup string) string {
	name := "cgroup " + cgroup
	weighted := k.cfg.Demand().Weighted
	for i := range weighted {
		switch w := &weighted[i]; w.Cgroup {
		case cgroup:
			return w.String()
		case path.Dir(cgroup):
			name = "a container of " + w.String()
		}
	}
	return name
}

// maxShares is the largest number of rows that a report has of containers and pods with a weight. There is one
// for each container and disk, so tenants decide on their number.
const maxShares = 4000

// effects has the effects of weights on disks.
type effects map[blkio.Dev]effect

// rows returns all that the report could have of a demand, in no order.
func (e effects) rows(d *Demand) iter.Seq[health.Share] {
	return func(yield func(health.Share) bool) {
		for i := range d.Weighted {
			w := &d.Weighted[i]
			if w.NoDisk != "" && !yield(w.idle()) {
				return
			}
			for _, disk := range w.Disks {
				s := health.Share{Namespace: w.Namespace, Pod: w.Pod, Container: w.Container, Disk: disk.Name, Weight: w.Weights.On(disk.Dev)}
				on := e[disk.Dev]
				due, reason := on.of(w.Cgroup)
				if s.Reason = reason; due != nil {
					s.Share = due.Fraction
					if due.Factor != 1 {
						s.Scaled = float64(s.Weight) * due.Factor
					}
				}
				s.Chosen = s.Reason != "" && on.chosen
				if !yield(s) {
					return
				}
			}
		}
	}
}

// idle returns the row of a weight that applies to no disk.
func (w *Weighted) idle() health.Share {
	return health.Share{Namespace: w.Namespace, Pod: w.Pod, Container: w.Container, Weight: w.Weights.Default, Reason: w.NoDisk}
}

// shares returns at most maxShares rows, and the number of those left out. Weights without an effect come
// first. If there are too many, each namespace gets the same number of rows, as far as it has them. So
// containers of one tenant do not hide those of another one.
func (e effects) shares(d *Demand) (out []health.Share, leftOut int) {
	counts := [2]map[string]int{{}, {}} // by namespace: with a problem, and without
	total := 0
	for s := range e.rows(d) {
		counts[kind(&s)][s.Namespace]++
		total++
	}
	if total > maxShares { // each report leaves out the same ones
		d = &Demand{Weighted: slices.SortedFunc(slices.Values(d.Weighted), Weighted.compare)}
	}
	room := maxShares
	for k := range counts {
		room -= divide(counts[k], room)
	}
	for s := range e.rows(d) {
		if left := counts[kind(&s)]; left[s.Namespace] > 0 {
			left[s.Namespace]--
			out = append(out, s)
		}
	}
	slices.SortFunc(out, func(a, b health.Share) int {
		return cmp.Or(
			cmp.Compare(kind(&a), kind(&b)),
			cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Pod, b.Pod), cmp.Compare(a.Container, b.Container), cmp.Compare(a.Disk, b.Disk),
		)
	})
	return out, total - len(out)
}

func (w Weighted) compare(other Weighted) int {
	return cmp.Or(
		cmp.Compare(w.Namespace, other.Namespace), cmp.Compare(w.Pod, other.Pod), cmp.Compare(w.Container, other.Container), cmp.Compare(w.Cgroup, other.Cgroup),
	)
}

// kind is 0 for a weight without an effect that the operator has not chosen, and otherwise 1.
func kind(s *health.Share) int {
	if s.Reason != "" && !s.Chosen {
		return 0
	}
	return 1
}

// divide lowers the counts, the largest ones first, until their sum is at most room. It returns
// the sum.
func divide(counts map[string]int, room int) (sum int) {
	names := slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(cmp.Compare(counts[a], counts[b]), cmp.Compare(a, b))
	})
	for i, name := range names { // the smallest first, because the others get the rows that it does not need
		counts[name] = min(counts[name], (room-sum)/(len(names)-i))
		sum += counts[name]
	}
	return sum
}
