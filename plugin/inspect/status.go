// Package inspect collects from a node the reports of the commands: records and their values, ended containers
// with data left to write, owners of files, and the tree of devices. For check it collects a node's facts and policy.
// It changes nothing on the node, and prints nothing.
package inspect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/health"
	"github.com/nri-blkio/nri-blkio/plugin/repair"
	"github.com/nri-blkio/nri-blkio/plugin/weights"
	"github.com/nri-blkio/nri-blkio/policy"
)

// Status is the report about a node's limits.
type Status struct {
	Dead        []DeadRow `json:"dead"`
	Notes       []Note    `json:"notes"`
	Orphans     []Orphan  `json:"orphans"`
	OrphansNote string    `json:"orphansNote,omitempty"` // why there may be more orphans
	Parts       []Part    `json:"parts"`
	Values      []Value   `json:"values"`
	Reported
}

// Reported has the reports that only a running part of the plugin has.
type Reported struct {
	Weights *health.Weights `json:"weights"`           // nil if the limits part does not run
	Budgets *health.Budgets `json:"budgets,omitempty"` // nil if the limits part does not run, and without budgets
	Files   *repair.Report  `json:"writeback"`         // nil if the writeback part does not run
}

// Status reads the state of the parts, and of the selected pods. Values that are not in force come first. The error has those of unreadable records and
// values; the report has the others.
func (h *Host) Status(ctx context.Context, filter Filter) (Status, error) {
	records, recordsErr := Records(h.Cgroups, filter)
	values, valuesErr := Values(records, h.Sysfs)
	burstsErr := h.addBursts(values)
	slices.SortStableFunc(values, func(a, b Value) int { return cmp.Compare(a.rank(), b.rank()) })
	files, filesErr := readFiles(h.StateDir, filter)
	parts, partsErr := readParts(h.StateDir, files)
	limits := limitsReport(parts)
	s := Status{
		Dead: FindDead(records, h.DiskName), Notes: Notes(records), Orphans: []Orphan{},
		Parts: parts, Values: values,
		Reported: Reported{Weights: weightsOf(limits, filter), Budgets: budgetsOf(limits, filter), Files: files},
	}
	orphansErr := h.StorageErr
	if h.Storage != nil {
		s.Orphans, orphansErr = h.Orphans(ctx, records, filter)
	}
	if orphansErr != nil {
		s.OrphansNote = orphansErr.Error()
	}
	return s, errors.Join(recordsErr, valuesErr, burstsErr, filesErr, partsErr)
}

// limitsReport returns what the limits part reports, an empty report if it does not run.
func limitsReport(parts []Part) *health.Report {
	for _, p := range parts {
		if p.Part == health.Limits && p.Report != nil {
			return p.Report
		}
	}
	return &health.Report{}
}

// weightsOf returns the report on weights, with the shares of the selected pods.
func weightsOf(r *health.Report, filter Filter) *health.Weights {
	if r.Weights == nil {
		return r.Weights
	}
	out := *r.Weights
	out.Shares = slices.DeleteFunc(slices.Clone(out.Shares), func(s health.Share) bool { return !filter.Matches(s.Namespace, s.Pod) })
	return &out
}

// budgetsOf returns the report on budgets. With a filter, it has the sums of its namespace.
func budgetsOf(r *health.Report, filter Filter) *health.Budgets {
	if r.Budgets == nil || filter.Namespace == "" {
		return r.Budgets
	}
	out := *r.Budgets
	out.Sums = slices.DeleteFunc(slices.Clone(out.Sums), func(s health.BudgetSum) bool { return s.Class == "" && s.Namespace != filter.Namespace })
	return &out
}

// Enforces reports whether the limits that a new container requests are enforced.
func (s *Status) Enforces() bool {
	return slices.ContainsFunc(s.Parts, func(p Part) bool { return p.Part == health.Limits && p.State == health.Connected })
}

// Removal is how far a node is with the removal of all that the plugin has written there. An instance in mode observe
// does that.
type Removal struct {
	Limits Part // the limits part
	// InForce has a line for each value of the plugin that the kernel still has: a limit or a weight of a record, a
	// weight above containers, or io.cost.
	InForce []string
}

// IsDone reports whether nothing is in force, and an instance in mode observe keeps it so.
func (r *Removal) IsDone() bool {
	return r.Limits.State == health.Connected && r.Limits.Report.Mode == string(policy.ModeObserve) && len(r.InForce) == 0
}

// Removal reads what is in force on the node. The error is about what could not be read.
func (h *Host) Removal(disks weights.Disks) (Removal, error) {
	limits, partErr := ReadPart(h.StateDir, health.Limits)
	out := Removal{Limits: limits}
	records, recordsErr := Records(h.Cgroups, Filter{})
	errs := []error{partErr, recordsErr}
	exists := diskProbe(h.Sysfs)
	for _, r := range records {
		got := readActual(r, exists)
		if got.err != nil && !errors.Is(got.err, blkio.ErrGone) {
			errs = append(errs, got.err)
		}
		for _, s := range r.Record.Settings {
			if got.values.At(s.Address) == s.Value && s.Value != s.Removal() {
				out.InForce = append(out.InForce, fmt.Sprintf("%s: %s", r.Cgroup.Path(), policy.NewSettings(s).Lines()[0].Text))
			}
		}
	}
	above, err := weights.Clear(h.Cgroups, disks, true)
	for _, step := range above {
		out.InForce = append(out.InForce, "not done: "+step)
	}
	return out, errors.Join(append(errs, err)...)
}

// rank puts the values first that are not in force and should be.
func (v *Value) rank() int {
	if v.isProblem(false) {
		return 0
	}
	return 1
}

func (v *Value) isProblem(strict bool) bool {
	return v.State != ValueOK && (strict || v.State != ValueCleared && v.State != ValueObserved)
}

// HasFindings reports whether there are problems.
func (s *Status) HasFindings(strict bool) bool { return len(s.Problems(strict)) > 0 }

// Problems returns a line for each requested value that is not in force, each weight without an effect, each guarantee that is not kept, and each part that has rejected its
// policy file, and one if the values of new containers are not enforced.
//
// The choices of an operator are problems only if strict is true. These are an observed or a cleared value, a
// weight on a disk with weights: off, and a node without a connected limits part on which no limit is
// requested.
func (s *Status) Problems(strict bool) (out []string) {
	if !s.Enforces() && (strict || len(s.Values) > 0) {
		out = append(out, "the limits part is not connected")
	}
	for _, p := range s.Parts {
		if p.PolicyRejected != "" {
			out = append(out, "part "+p.Part+" has rejected the new policy")
		}
	}
	for i := range s.Values {
		if v := &s.Values[i]; v.isProblem(strict) {
			out = append(out, v.problem())
		}
	}
	if s.Budgets != nil {
		for i := range s.Budgets.Sums {
			if b := &s.Budgets.Sums[i]; b.Reason != "" && (strict || !b.Chosen) {
				out = append(out, fmt.Sprintf("%s: the guarantee is not kept on %s", b.Group(), b.Disk))
			}
		}
	}
	if s.Weights == nil {
		return out
	}
	for _, w := range s.Weights.Shares {
		if w.Reason != "" && (strict || !w.Chosen) {
			out = append(out, fmt.Sprintf("%s/%s: the weight has no effect", w.Namespace, w.Pod))
		}
	}
	return out
}

// problem returns a line, "prod/db-0 db: wbps=1Mi on vdb: drift".
func (v *Value) problem() string {
	text := strings.TrimSpace(v.Namespace + "/" + v.Pod + " " + v.Container)
	if v.Key != "" {
		text += ": " + v.Key + "=" + v.Asked
	}
	if v.Disk != "" {
		text += " on " + v.Disk
	}
	return text + ": " + v.State
}

// maxProblems is how many problems Brief names.
const maxProblems = 3

// Brief returns one line: the problems or, if there are none, how many limits are in force.
func (s *Status) Brief(strict bool) string {
	if problems := s.Problems(strict); len(problems) > 0 {
		text := Count(len(problems), "problem") + ": " + strings.Join(problems[:min(len(problems), maxProblems)], "; ")
		if more := len(problems) - maxProblems; more > 0 {
			text += fmt.Sprintf("; and %d more", more)
		}
		return text
	}
	states, pods := map[string]int{}, map[string]bool{}
	for i := range s.Values {
		if v := &s.Values[i]; v.Source.Kind != policy.FromBackstop {
			states[v.State]++
			if v.State == ValueOK {
				pods[v.Namespace+"/"+v.Pod] = true
			}
		}
	}
	text := []string{fmt.Sprintf("ok: %s in force on %s", Count(states[ValueOK], "limit"), Count(len(pods), "pod"))}
	for _, state := range []string{ValueObserved, ValueCleared} {
		if states[state] > 0 {
			text = append(text, fmt.Sprintf("%d %s", states[state], state))
		}
	}
	return strings.Join(text, ", ")
}

// Pods returns the pods with requested values, each once, as NAMESPACE/NAME.
func (s *Status) Pods() (out []string) {
	for i := range s.Values {
		out = append(out, s.Values[i].Namespace+"/"+s.Values[i].Pod)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Part is one part of "nri-blkio run" on this node.
type Part struct {
	Part   string    `json:"part"`
	State  string    `json:"state"` // of health.Report or a mode of repair.Report, or NotRunning
	Since  time.Time `json:"since,omitzero"`
	Detail string    `json:"detail,omitempty"`
	// PolicyRejected is the reason why the part does not follow the present content of its policy file, or "".
	PolicyRejected string         `json:"policyRejected,omitempty"`
	Report         *health.Report `json:"report,omitempty"`
}

// NotRunning is the state of a part without a fresh report.
const NotRunning = "not running"

// ReadPart reads the state of one part from the state directory.
func ReadPart(dir, part string) (Part, error) {
	if part == health.Writeback {
		files, err := repair.ReadReport(health.File(dir, part))
		return writebackPart(files), err
	}
	read := health.Read
	if part == health.Cluster {
		read = func(dir, _ string) (*health.Report, error) { return health.ReadCluster(health.ExchangeDir(dir)) }
	}
	r, err := read(dir, part)
	if r == nil {
		return Part{Part: part, State: NotRunning}, err
	}
	return Part{Part: part, State: r.State, Since: r.Since, Detail: detail(r), PolicyRejected: r.PolicyRejected, Report: r}, nil
}

// Works reports whether a part does its work. An unavailable writeback part counts as working: the kernel lacks
// a feature that it needs, and a restart would not help.
func (p *Part) Works() bool {
	return p.State == health.Connected || p.Part == health.Writeback && p.State != NotRunning
}

// String returns one line, "limits: connected, mode enforce".
func (p *Part) String() string {
	text := p.Part + ": " + p.State
	if p.Detail != "" {
		text += ", " + p.Detail
	}
	if p.PolicyRejected != "" {
		text += ", the new policy is rejected: " + p.PolicyRejected
	}
	return text
}

// readParts reads the state of all parts. files is the report of the writeback part, nil if it
// does not run. The validator and the cluster part are left out where they do not run, since few nodes
// have them. The error is not that of the cluster part, which is not trusted: it would make status fail. It is in the
// detail of that part.
func readParts(dir string, files *repair.Report) ([]Part, error) {
	limits, err := ReadPart(dir, health.Limits)
	parts, errs := []Part{limits, writebackPart(files)}, []error{err}
	for _, name := range []string{health.Validator, health.Cluster} {
		optional, err := ReadPart(dir, name)
		if name == health.Cluster && err != nil {
			optional.Detail, err = err.Error(), nil
		}
		if optional.State != NotRunning || optional.Detail != "" || err != nil {
			parts, errs = append(parts, optional), append(errs, err)
		}
	}
	return parts, errors.Join(errs...)
}

func writebackPart(files *repair.Report) Part {
	if files == nil {
		return Part{Part: health.Writeback, State: NotRunning}
	}
	return Part{Part: health.Writeback, State: files.Mode, Detail: files.Reason, PolicyRejected: files.PolicyRejected}
}

// detail describes a part in one line.
func detail(r *health.Report) string {
	var out []string
	for _, s := range []string{r.Runtime, r.Reason} {
		if s != "" {
			out = append(out, s)
		}
	}
	if r.Part == health.Cluster {
		out = append(out, "documents of "+Count(r.Pods, "pod"))
	}
	if r.Part == health.Limits {
		policy := "built-in policy"
		switch {
		case r.PolicyOfRuntime:
			policy = "policy of the runtime's configuration"
		case r.Policy != "":
			policy = "policy " + r.Policy
		}
		out = append(out, "mode "+r.Mode, policy, Count(r.Pods, "pod")+" with annotations")
		if r.NotInForce > 0 {
			out = append(out, Count(r.NotInForce, "pod")+" not in force")
		}
		if r.Failed > 0 {
			out = append(out, Count(r.Failed, "container")+" without some requested limits")
		}
	}
	return strings.Join(out, ", ")
}

// Count returns a number with a noun, "1 pod" or "2 pods".
func Count(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}

// readFiles reads the report of the writeback part, nil if it does not run. It
// has the files that the selected pods own or write.
func readFiles(dir string, filter Filter) (*repair.Report, error) {
	r, err := repair.ReadReport(health.File(dir, health.Writeback))
	if r == nil || filter == (Filter{}) {
		return r, err
	}
	ofPod := func(c repair.ContainerName) bool { return filter.Matches(c.Namespace, c.Pod) }
	r.Files = slices.DeleteFunc(r.Files, func(f repair.File) bool {
		return !ofPod(f.Owner.ContainerName) && !slices.ContainsFunc(f.Writers, func(w repair.Writer) bool { return ofPod(w.ContainerName) })
	})
	return r, err
}
