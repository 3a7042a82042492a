package inspect

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nri-blkio/nri-blkio/plugin/health"
	"github.com/nri-blkio/nri-blkio/plugin/repair"
)

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
