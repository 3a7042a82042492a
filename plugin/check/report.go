package check

import (
	"context"
	"fmt"
	"slices"

	"github.com/nri-blkio/nri-blkio/plugin/manifest"
	"github.com/nri-blkio/nri-blkio/policy/quote"
)

// Report is the report about the pods of manifests.
type Report struct {
	Policy   string             `json:"policy"` // PolicySource.Name
	Findings []manifest.Finding `json:"findings"`
	Pods     []Result           `json:"pods"`
	// Claims is the number of claims, templates of claims and VolumeAttributesClasses.
	Claims  int              `json:"claims,omitempty"`
	LeftOut []manifest.Other `json:"leftOut,omitempty"` // objects without any of these
}

// HasErrors reports whether a manifest or a pod has an error.
func (r *Report) HasErrors() bool {
	return manifest.HasErrors(r.Findings) || slices.ContainsFunc(r.Pods, func(p Result) bool { return len(p.Errors) > 0 })
}

// PolicySource describes where the policy of a Checker comes from.
type PolicySource struct {
	Name    string // the path of the file, or BuiltIn, and more about it
	Unknown string // why the node may have another policy; "" if it has this one
}

// BuiltIn is the name of the policy that applies without a file.
const BuiltIn = "built-in"

// String returns one line.
func (s PolicySource) String() string {
	if s.Unknown == "" {
		return s.Name
	}
	return s.Name + ": " + s.Unknown
}

// Report returns the decisions for the pods of manifests. If the node may have another policy, the results of
// the pods that a policy concerns have this as unknown.
func (c *Checker) Report(ctx context.Context, set *manifest.Set, source PolicySource) Report {
	out := Report{
		Policy: source.Name, Findings: append([]manifest.Finding{}, set.Findings...), Pods: make([]Result, 0, len(set.Pods)),
	}
	for i := range set.Pods {
		r := c.guarded(ctx, &set.Pods[i])
		if source.Unknown != "" && len(r.Writes)+len(r.Errors) > 0 {
			r.Unknown = append(r.Unknown, "the node's policy: "+source.Unknown+" (set --policy)")
		}
		out.Pods = append(out.Pods, r)
	}
	out.Findings = append(out.Findings, claimFindings(set)...)
	out.Claims, out.LeftOut = len(set.Claims)+len(set.Classes), set.Others
	return out
}

// guarded is Pod. A fault of this program costs one pod only.
func (c *Checker) guarded(ctx context.Context, m *manifest.Pod) (r Result) {
	defer func() {
		if fault := recover(); fault != nil {
			r = Result{
				Object: m.Object, Position: m.Position, Writes: []Write{},
				Errors: []string{m.Position.String() + ": a fault of this program, please report it: " + quote.ASCII(fmt.Sprint(fault))},
			}
		}
	}()
	return c.Pod(ctx, m)
}
