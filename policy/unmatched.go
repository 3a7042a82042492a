package policy

import (
	"slices"
	"strconv"

	"github.com/nri-blkio/nri-blkio/policy/quote"
	"github.com/nri-blkio/nri-blkio/policy/spelling"
)

// Unmatched returns a line for each annotation that names a container, path or volume that
// the pod does not have. Containers come one by one, so the result is final only once the
// pod runs. Each line is printable ASCII; after 16 of them the last line is "and N more".
func Unmatched(r *Request, cs []Container) []string {
	if r.Empty() {
		return nil
	}
	var names, out []string
	var indexes []*MountIndex
	areKnown := true // the mounts of all containers
	for i := range cs {
		names, indexes = append(names, cs[i].Name), append(indexes, IndexMounts(cs[i].Mounts))
		areKnown = areKnown && !cs[i].Unknown
	}
	more := 0
	for _, n := range r.ContainerNames() {
		switch {
		case slices.Contains(names, n):
		case len(out) == maxListed:
			more++
		default:
			line := "container." + n + ": the pod has no container " + quote.Text(n) + " yet"
			if hint := spelling.Hint(n, names...); hint != "" {
				line += " (" + hint + ")"
			}
			out = append(out, line)
		}
	}
	for _, q := range []*request{r.each, r.total} {
		if q == nil || q.limits == nil || !areKnown {
			continue
		}
		for i := range q.limits.entries {
			switch en := &q.limits.entries[i]; {
			case isMatched(&en.target, indexes):
			case len(out) == maxListed:
				more++
			default:
				out = append(out, q.limits.key+": entry "+strconv.Itoa(en.number)+
					": no container of the pod has a mount "+en.target.where()+" yet")
			}
		}
	}
	return andMore(out, more)
}

// isMatched reports whether some container has what a target means.
func isMatched(t *target, containers []*MountIndex) bool {
	switch t.kind {
	case targetPath:
		return slices.ContainsFunc(containers, func(x *MountIndex) bool { return x.Find(t.path) >= 0 })
	case targetVolume:
		return slices.ContainsFunc(containers, func(x *MountIndex) bool { return len(x.volumes[t.volume]) > 0 })
	}
	return true
}
