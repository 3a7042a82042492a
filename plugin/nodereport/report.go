// Package nodereport has the short report about a node. The limits part makes it, the cluster part keeps it at the API server,
// and kubectl blkio reads those of all nodes with one request. It builds on every system.
package nodereport

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/nri-blkio/nri-blkio/policy/quote"
)

// Version is the version of the reports that this package writes.
const Version = 1

// The object with the report of a node is a Lease in the namespace of the plugin, with this name before that of the node, this
// value of the label app.kubernetes.io/name, and the report as the value of an annotation.
const (
	NamePrefix = "nri-blkio-"
	NameLabel  = "app.kubernetes.io/name"
	Name       = "nri-blkio-report"
	Annotation = "blkio.noderesource.dev/report"
)

// FileName is the name of the report in the events directory, by which the limits part passes it to the cluster part.
const FileName = "node.json"

const (
	// Interval is the time after which an unchanged report is written again.
	Interval = time.Minute
	// MaxAge is the age from which on a node counts as silent.
	MaxAge = 3 * Interval
)

// Bounds of a report.
const (
	MaxProblems = 100
	MaxSize     = 32 << 10 // bytes
	maxText     = 400      // bytes, of a text
	maxProgram  = 64       // bytes
)

// Report is about one node.
type Report struct {
	Version int       `json:"version"`
	Program string    `json:"program"` // the version of nri-blkio
	At      time.Time `json:"at"`      // when the limits part made it
	// Pods counts the pods with annotations, with a class by a rule, or with a budget; InForce those of them without a problem.
	Pods     int       `json:"pods"`
	InForce  int       `json:"inForce"`
	Problems []Problem `json:"problems"` // sorted
	LeftOut  int       `json:"leftOut"`  // problems for which there was no room
}

// Problem is one of a pod, or, without a namespace and a name, of the node.
type Problem struct {
	Namespace string `json:"namespace,omitempty"`
	Pod       string `json:"pod,omitempty"`
	Reason    string `json:"reason"` // of an Event, or one of the constants below
	Text      string `json:"text"`
}

// Reasons that no Event has.
const (
	Silent         = "Silent"         // no report for some time
	NotRunning     = "NotRunning"     // the limits part writes no report
	Disconnected   = "Disconnected"   // new containers start without limits
	PolicyRejected = "PolicyRejected" // an earlier policy is in force
	NoEffect       = "NoEffect"       // a weight has none
)

// Compare orders problems: those of the node come first.
func (p Problem) Compare(other Problem) int {
	return cmp.Or(cmp.Compare(p.Namespace, other.Namespace), cmp.Compare(p.Pod, other.Pod), cmp.Compare(p.Reason, other.Reason), cmp.Compare(p.Text, other.Text))
}

// New returns a report with as many of the problems as there is room for. They are taken in turns of the namespaces, so that
// the problems of one tenant do not hide those of another one.
func New(program string, at time.Time, pods int, problems []Problem) *Report {
	problems = slices.Clone(problems)
	for i := range problems {
		problems[i].Text = quote.Clip(quote.ASCII(problems[i].Text), maxText)
	}
	slices.SortFunc(problems, Problem.Compare)
	problems = slices.Compact(problems)
	r := &Report{Version: Version, Program: quote.Clip(program, maxProgram), At: at.UTC().Truncate(time.Second), Pods: pods, Problems: []Problem{}}
	r.InForce = max(0, pods-podsWith(problems))
	left := MaxSize - len(r.Encode()) - 10 // digits of LeftOut
	for _, p := range inTurns(problems) {
		size := len(encode(p)) + len(",")
		if len(r.Problems) == MaxProblems || size > left {
			r.LeftOut++
			continue
		}
		left -= size
		r.Problems = append(r.Problems, p)
	}
	slices.SortFunc(r.Problems, Problem.Compare)
	return r
}

// podsWith counts the pods that have a problem. The problems are sorted.
func podsWith(problems []Problem) (n int) {
	for i, p := range problems {
		if p.Pod != "" && (i == 0 || p.Namespace != problems[i-1].Namespace || p.Pod != problems[i-1].Pod) {
			n++
		}
	}
	return n
}

// inTurns returns the first problem of each namespace, then the second of each, and so on. The problems are sorted.
func inTurns(problems []Problem) []Problem {
	type turn struct {
		Problem
		n int
	}
	turns := make([]turn, len(problems))
	for i, p := range problems {
		turns[i].Problem = p
		if i > 0 && p.Namespace == problems[i-1].Namespace {
			turns[i].n = turns[i-1].n + 1
		}
	}
	slices.SortStableFunc(turns, func(a, b turn) int { return cmp.Compare(a.n, b.n) })
	out := make([]Problem, len(turns))
	for i, t := range turns {
		out[i] = t.Problem
	}
	return out
}

// Equal reports whether two reports differ in their times only.
func (r *Report) Equal(other *Report) bool {
	a, b := *r, *other
	a.At, b.At = time.Time{}, time.Time{}
	return bytes.Equal(a.Encode(), b.Encode())
}

// Encode returns the report as JSON, in one line.
func (r *Report) Encode() []byte { return encode(r) }

func encode(v any) []byte {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false) // "<" would take six bytes
	_ = e.Encode(v)        // the types of this package have no values that JSON lacks, and a buffer takes all
	return bytes.TrimSuffix(out.Bytes(), []byte("\n"))
}

// Decode reads a report. Its texts are those of the node that wrote it, and may be any.
func Decode(data []byte) (*Report, error) {
	if len(data) > MaxSize {
		return nil, fmt.Errorf("a report of %d bytes (maximum %d)", len(data), MaxSize)
	}
	var r Report
	if err := json.Unmarshal(data, &r); err != nil {
		return nil, fmt.Errorf("read a report: %w", err)
	}
	if r.Version != Version {
		return nil, fmt.Errorf("a report of version %d (known is %d)", r.Version, Version)
	}
	if len(r.Problems) > MaxProblems {
		return nil, fmt.Errorf("a report of %d problems (maximum %d)", len(r.Problems), MaxProblems)
	}
	return &r, nil
}
