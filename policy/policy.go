package policy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// Mode selects whether limits are enforced or only reported.
type Mode string

const (
	// ModeEnforce puts limits into force.
	ModeEnforce Mode = "enforce"
	// ModeObserve only decides and reports.
	ModeObserve Mode = "observe"
)

// Action is the reaction to an error.
type Action string

const (
	// Reject fails the container's creation.
	Reject Action = "reject"
	// Ignore lets the container start, and reports the error in the log, status and
	// metrics.
	Ignore Action = "ignore"
)

// OnError has the action for each kind of error.
type OnError struct {
	// The annotation cannot be parsed, contradicts itself, or is out of bounds.
	Invalid Action `json:"invalid"`
	// The node cannot enforce it, such as a limit on tmpfs or NFS.
	Unenforceable Action `json:"unenforceable"`
	// The plugin itself fails or is too slow. With `reject`, the runtime also fails a call that the plugin does not
	// answer (nri 0.12.4 or later). A change of this value makes the plugin register again.
	Internal Action `json:"internal"`
}

// Floors has the smallest rates that pods may request. Under much lower rates a container can stay in
// uninterruptible sleep, in which it cannot be killed.
type Floors struct {
	Bps  blkio.Amount // bytes per second
	Iops blkio.Amount // operations per second
}

// minRate is the smallest rate that the kernel takes (tg_set_limit in
// block/blk-throttle.c).
const minRate blkio.Amount = 2

// of returns the floor of a key; never less than the kernel's own.
func (f Floors) of(k blkio.Key) blkio.Amount {
	if k.IsBytes() {
		return max(f.Bps, minRate)
	}
	return max(f.Iops, minRate)
}

// Policy is the policy of a node. It has no useful zero value: take Default or
// ParseFile.
type Policy struct {
	Mode    Mode
	OnError OnError
	Floors  Floors
	Bounds  Bounds // for pods whose rule has none of its own
	// Bursts is the most that bursts may take on each disk together, above the limits. A key that is Unset has no bursts.
	Bursts    blkio.Limits
	Classes   map[string]*Class
	Rules     []Rule // for pods; the first one that matches a pod counts
	Budgets   []NamespaceBudget
	Writeback Writeback
	// Disks are rules for io.cost; the first one that matches a disk counts.
	Disks []DiskRule
	// Reserve is the share of each disk that everything outside pods has while it asks for it.
	Reserve blkio.Percent
	// HostKernelHandlers are the runtime handlers that run containers on the host's kernel.
	// "" is the handler of pods without a RuntimeClass.
	HostKernelHandlers []string
}

// Default returns the policy of a node that has no policy file.
func Default() *Policy {
	const batch = "batch" // for work that can wait
	weights := annotation.WeightOfAll("classes."+batch, 10)
	return &Policy{
		Mode:    ModeEnforce,
		OnError: OnError{Invalid: Reject, Unenforceable: Reject, Internal: Ignore},
		Floors:  Floors{Bps: 64 << 10, Iops: 8},
		Bounds:  Bounds{MaxWeight: blkio.DefaultWeight},
		Classes: map[string]*Class{batch: {Name: batch, weights: weights, targets: weights.Targets()}},
		Writeback: Writeback{
			Backstop: true, HandOver: true, Repair: RepairAuto, Contested: Majority,
			Budget: Budget{FilesPerSecond: 100, ExtraBps: 16 << 20, CPU: 10},
		},
		HostKernelHandlers: []string{
			"", "runc", "crun", "youki", "nvidia", "nvidia-cdi", "nvidia-legacy",
		},
	}
}

// Writeback configures backstop, hand-over and repair.
type Writeback struct {
	// Backstop limits the pod's cgroup to the sum of its containers' limits, see
	// [Backstop].
	Backstop bool
	// HandOver lifts the limits of an ended container before its cgroup is removed, and
	// syncs its volumes.
	HandOver bool
	// DirtyGuard is the memory.high, in bytes, for containers with a write limit and
	// without a memory limit. 0 sets none.
	DirtyGuard uint64
	// Repair moves files to their writers, where a limit depends on the owner.
	Repair Repair
	// Contested selects the owner of a file with several writers.
	Contested Contested
	// Budget bounds the work of Repair.
	Budget Budget
}

// Repair selects whether files are moved to their writers. Moving files runs code of the
// kernel that had bugs which crash nodes, so the default depends on the kernel.
type Repair string

const (
	// RepairAuto moves files where the kernel is known to contain the corrections.
	RepairAuto Repair = "auto"
	// RepairOn moves files on any kernel.
	RepairOn Repair = "true"
	// RepairOff moves no files.
	RepairOff Repair = "false"
)

// Moves reports whether files are moved. corrected is true if the kernel is known to
// contain the corrections.
func (r Repair) Moves(corrected bool) bool { return r == RepairOn || r == RepairAuto && corrected }

// Contested selects the desired owner of a contested file.
type Contested string

const (
	// Majority moves a file to its majority writer.
	Majority Contested = "majority"
	// Strict moves a file to the writer with the smallest limit.
	Strict Contested = "strict"
)

// Budget bounds the work of repair on the node.
type Budget struct {
	FilesPerSecond int    // files whose move begins
	ExtraBps       uint64 // bytes per second that are written out early, on all disks together
	CPU            int    // percent of one CPU; up to ten seconds of unused budget are saved
}

// minGuard is less than which a container cannot be expected to run at all.
const minGuard = 16 << 20

// minExtra is the number of bytes that one vote may write out.
const minExtra = 64 << 10

// Warnings returns likely mistakes of a valid policy: rules and budgets that are never reached, a list of handlers
// without that of most pods, and what bounds tenants less, or system pods more, than it seems.
func (p *Policy) Warnings() (out []string) {
	if i := slices.IndexFunc(p.Rules, func(r Rule) bool { return r.Match.isForAll() }); i >= 0 && i < len(p.Rules)-1 {
		out = append(out, "rule "+p.Rules[i+1].Name+" of the policy and those after it are never reached: rule "+p.Rules[i].Name+" matches all pods")
	}
	isForAll := func(b NamespaceBudget) bool { return slices.Contains(b.Namespaces, "*") }
	if i := slices.IndexFunc(p.Budgets, isForAll); i >= 0 && i < len(p.Budgets)-1 {
		out = append(out, fmt.Sprintf("budgets[%d] of the policy and those after it are never reached: budgets[%d] matches all namespaces", i+1, i))
	}
	if !slices.Contains(p.HostKernelHandlers, "") {
		out = append(out, `hostKernelHandlers of the policy lacks "": `+
			"pods without a RuntimeClass count as pods on another kernel, so they get no class and count for no budget")
	}
	if p.hasBounds() && !p.ConcernsUnannotated() {
		out = append(out, "bounds.max of the policy bounds only what annotations request: without a rule with a class, pods without annotations have no limit")
	}
	return append(append(out, p.budgetsOfSystem()...), p.joinable()...)
}

// hasBounds reports whether the policy or a rule has a largest rate.
func (p *Policy) hasBounds() bool {
	return !p.Bounds.Max.IsZero() || slices.ContainsFunc(p.Rules, func(r Rule) bool { return !r.Bounds.Max.IsZero() })
}

// budgetsOfSystem warns of budgets that reject the pods of the cluster and of the plugin: those have no limits.
func (p *Policy) budgetsOfSystem() []string {
	namespaces := slices.DeleteFunc([]string{"kube-system", "nri-blkio"}, func(name string) bool {
		return p.BudgetFor(name) == nil || p.ruleFor(&PodFacts{Namespace: name}).class() != nil
	})
	if len(namespaces) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("a budget of the policy rejects containers without a limit in %s (put first: {namespaces: [%s], limits: [\"* wbps=max\"]})",
		strings.Join(namespaces, " and "), strings.Join(namespaces, ", "))}
}

// joinable warns of rules that the author of a pod can join by its labels, to leave a later rule that bounds the pods
// of a namespace more, or to have a guarantee in any namespace.
func (p *Policy) joinable() (out []string) {
	for i := range p.Rules {
		r := &p.Rules[i]
		if m := &r.Match; m.Selector == nil || m.Selector.Empty() || m.NamespaceSelector != nil {
			continue
		}
		later := p.Rules[i+1:]
		if at := slices.IndexFunc(later, func(o Rule) bool { return r.Match.reaches(&o.Match) && p.allowsMore(r, &o) }); at >= 0 {
			out = append(out, "rule "+r.Name+" of the policy allows more than rule "+later[at].Name+
				" after it: the author of a pod can join it by labels (match trusted namespaces in it)")
		} else if c := r.Class; c != nil && c.guarantee != 0 && isEach(r.Match.Namespaces) {
			out = append(out, "rule "+r.Name+" of the policy gives the guarantee of class "+c.Name+
				" in each namespace: the author of a pod can join it by labels (match trusted namespaces in it)")
		}
	}
	return out
}

// isEach reports whether a rule with these namespaces is for all.
func isEach(names []string) bool { return len(names) == 0 || slices.Contains(names, "*") }

// reaches reports whether a rule for some labels of pods also holds in namespaces that a later rule selects.
func (m *PodMatch) reaches(later *PodMatch) bool {
	if isEach(later.Namespaces) && later.NamespaceSelector == nil {
		return false // the later rule is not about namespaces
	}
	return isEach(m.Namespaces) || slices.ContainsFunc(m.Namespaces, func(name string) bool { return slices.Contains(later.Namespaces, name) })
}

// allowsMore reports whether a rule has a guarantee, or allows an annotation, that another one does not.
func (p *Policy) allowsMore(r, than *Rule) bool {
	if c := r.Class; c != nil && c.guarantee != 0 && c != than.Class {
		return true
	}
	if !r.allowsAnnotations() || !than.allowsAnnotations() {
		return r.allowsAnnotations()
	}
	for k := range blkio.NumLimits {
		most, bound := cmp.Or(r.Bounds.Max[k], p.Bounds.Max[k]), cmp.Or(than.Bounds.Max[k], p.Bounds.Max[k])
		if bound != blkio.Unset && (most == blkio.Unset || most > bound) {
			return true
		}
	}
	return cmp.Or(r.Bounds.MaxWeight, p.Bounds.MaxWeight) > cmp.Or(than.Bounds.MaxWeight, p.Bounds.MaxWeight)
}
