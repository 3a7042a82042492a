package policy

import (
	"slices"
	"strconv"

	"github.com/nri-blkio/nri-blkio/policy/annotation"
	"github.com/nri-blkio/nri-blkio/policy/quote"
	"github.com/nri-blkio/nri-blkio/policy/spelling"
)

// Unmatched returns a line for each annotation that names a container, path or volume that
// the pod does not have. Containers are created one after another, so the result is final
// only when all containers of the pod have been created. Each line is printable ASCII.
// After 16 lines the last one is "and N more".
func (p *Pod) Unmatched(cs []Container) []string {
	r := p.request
	if r.Empty() {
		return nil
	}
	var names []string
	var out distinct[string]
	var indexes []MountIndex
	areKnown := true // the mounts of all containers
	for i := range cs {
		names, indexes = append(names, cs[i].Name), append(indexes, p.index(&cs[i]))
		areKnown = areKnown && cs[i].Stage != Ended
	}
	for _, n := range r.ContainerNames() {
		if slices.Contains(names, n) {
			continue
		}
		line := "container." + n + ": the pod has no container " + quote.Text(n)
		if hint := spelling.Hint(n, names...); hint != "" {
			line += " (" + hint + ")"
		}
		out.add(line)
	}
	for _, q := range []*annotation.Scope{r.Each(), r.Total()} {
		if q == nil || q.Limits == nil || !areKnown {
			continue
		}
		for i := range q.Limits.Entries {
			if en := &q.Limits.Entries[i]; !p.isMatched(&en.Target, indexes) {
				out.add(q.Limits.From.Annotation + ": entry " + strconv.Itoa(en.Number) +
					": no container of the pod has a mount " + en.Target.Where())
			}
		}
	}
	return andMore(out.kept, len(out.more))
}

// isMatched reports whether some container has an object that the target selects.
func (p *Pod) isMatched(t *annotation.Target, containers []MountIndex) bool {
	switch t.Kind {
	case annotation.TargetPath:
		return slices.ContainsFunc(containers, func(x MountIndex) bool { return x.Find(t.Path) >= 0 })
	case annotation.TargetVolume:
		return slices.ContainsFunc(containers, func(x MountIndex) bool {
			return len(x.volumes[t.Volume]) > 0 || x.isUnnamed && !p.volumes.Known() // an error while the volumes are unknown
		})
	}
	return true
}
