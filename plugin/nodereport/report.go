// Package nodereport has the short report about a node. The limits part makes it, the cluster part keeps it at the API server,
// and kubectl blkio reads those of all nodes with one request. It builds on every system.
package nodereport

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nri-blkio/nri-blkio/policy/quote"
)

const (
	version = 1
	// FileName is the name of the report in the events directory, by which the limits part passes it to the cluster part.
	FileName = "node.json"
	// Interval is the time after which an unchanged report is written again.
	Interval = time.Minute
	// MaxAge is the age from which on a node counts as silent.
	MaxAge = 3 * Interval
)

// The object with the report of a node is a Lease in the namespace of the plugin. Its name is NamePrefix and that of the node, it has
// the label app.kubernetes.io/name with the value Name, and the report is the value of Annotation.
const (
	NamePrefix = "nri-blkio-"
	Name       = "nri-blkio-report"
	Annotation = "blkio.noderesource.dev/report"
)

// Bounds of a report. MaxSize is in bytes, maxText those of each text.
const (
	MaxProblems = 100
	MaxSize     = 32 << 10
	maxText     = 400
	maxLabel    = 63  // of namespaces and reasons
	maxName     = 253 // of pods
)

// Report is about one node.
type Report struct {
	Version int    `json:"version"` // of the report
	Program string `json:"program"` // the version of nri-blkio
	// Pods counts the pods with annotations, with a class by a rule, or with a budget. InForce counts those without a problem.
	Pods     int       `json:"pods"`
	InForce  int       `json:"inForce"`
	Problems []Problem `json:"problems"`
	LeftOut  int       `json:"leftOut"` // problems for which there was no room
}

// Problem is one of a pod or, without a namespace and a name, of the node.
type Problem struct {
	Namespace string `json:"namespace,omitempty"`
	Pod       string `json:"pod,omitempty"`
	Reason    string `json:"reason"` // that of an Event, or one of the constants below
	Text      string `json:"text"`
}

// Reasons that no Event has.
const (
	Silent         = "Silent"         // no report for some time
	NotRunning     = "NotRunning"     // the limits part writes no report
	Disconnected   = "Disconnected"   // new containers start without limits
	Degraded       = "Degraded"       // the limits part works in parts, or cannot tell
	PolicyRejected = "PolicyRejected" // an earlier policy is in force
	NoEffect       = "NoEffect"       // a weight has none
)

// Compare orders problems: those of the node come first.
func (p Problem) Compare(other Problem) int {
	return cmp.Or(cmp.Compare(p.Namespace, other.Namespace), cmp.Compare(p.Pod, other.Pod), cmp.Compare(p.Reason, other.Reason), cmp.Compare(p.Text, other.Text))
}

// Encode returns a report with as many of the problems as there is room for. They are taken in turns of the namespaces, so that the
// problems of one tenant do not hide those of another one.
func Encode(program string, pods int, problems []Problem) []byte {
	problems = slices.Clone(problems)
	for i := range problems {
		p := &problems[i]
		p.Namespace, p.Pod, p.Reason = quote.Clip(p.Namespace, maxLabel), quote.Clip(p.Pod, maxName), quote.Clip(p.Reason, maxLabel)
		p.Text = quote.Clip(quote.ASCII(p.Text), maxText)
	}
	slices.SortFunc(problems, Problem.Compare)
	problems = slices.Compact(problems)
	r := Report{version, program, pods, pods, []Problem{}, 0}
	left, turns, turn := MaxSize-len(encode(r))-16, map[int][]Problem{}, 0 // 16: the digits of the numbers
	for i, p := range problems {
		if turn++; i == 0 || p.Namespace != problems[i-1].Namespace {
			turn = 0
		}
		if p.Pod != "" && (turn == 0 || p.Pod != problems[i-1].Pod) {
			r.InForce = max(0, r.InForce-1)
		}
		turns[turn] = append(turns[turn], p)
	}
	for turn := range len(problems) {
		for _, p := range turns[turn] {
			if size := len(encode(p)) + len(","); len(r.Problems) == MaxProblems || size > left {
				r.LeftOut++
			} else {
				left -= size
				r.Problems = append(r.Problems, p)
			}
		}
	}
	return encode(r)
}

func encode(v any) []byte {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false) // "<" would take six bytes
	_ = e.Encode(v)        // the types of this package have no values that JSON lacks, and a buffer takes all
	return bytes.TrimSuffix(out.Bytes(), []byte("\n"))
}

// Decode reads a report. Its texts are those of the node that wrote it, and may be any. One that is larger than those that Encode
// makes is an error: it would hide those of other nodes.
func Decode(data []byte) (*Report, error) {
	var r Report
	if err := json.Unmarshal(data, &r); err != nil {
		return nil, fmt.Errorf("read the report: %w", err)
	}
	if r.Version != version {
		return nil, fmt.Errorf("the report is of version %d (known is %d)", r.Version, version)
	}
	if len(data) > MaxSize || len(r.Problems) > MaxProblems || len(r.Program) > maxText || !r.isPlausible() ||
		slices.ContainsFunc(r.Problems, Problem.isLong) {
		return nil, errors.New("the report exceeds its bounds")
	}
	return &r, nil
}

// maxCount is more than a node can have of pods or of problems.
const maxCount = 1 << 20

func (r *Report) isPlausible() bool {
	return min(r.Pods, r.InForce, r.LeftOut) >= 0 && max(r.Pods, r.LeftOut) <= maxCount && r.InForce <= r.Pods
}

// isLong reports whether a name is longer than those of Kubernetes and of reasons, or the text is.
func (p Problem) isLong() bool {
	return max(len(p.Namespace), len(p.Reason)) > maxLabel || len(p.Pod) > maxName || len(p.Text) > maxText
}
