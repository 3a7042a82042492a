package check

import (
	"context"
	"slices"

	"github.com/nri-blkio/nri-blkio/plugin/manifest"
)

// Report is the report about the pods of manifests.
type Report struct {
	Policy   string             `json:"policy"` // PolicySource.Name
	Findings []manifest.Finding `json:"findings"`
	Pods     []Result           `json:"pods"`
	Notes    []string           `json:"notes,omitempty"` // about all pods together
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
		r := c.Pod(ctx, &set.Pods[i])
		if source.Unknown != "" && len(r.Writes)+len(r.Errors) > 0 {
			r.Unknown = append(r.Unknown, "the node's policy: "+source.Unknown+" (set --policy)")
		}
		out.Pods = append(out.Pods, r)
	}
	out.Notes = c.Sums(out.Pods)
	return out
}
