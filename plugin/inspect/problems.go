package inspect

import (
	"fmt"
	"slices"
	"strings"

	"github.com/nri-blkio/nri-blkio/policy"
)

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
