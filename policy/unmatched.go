package policy

import (
	"slices"
	"strconv"
)

// Unmatched says, once a pod runs, which annotations name a container that did
// not come, or a path that no container has a mount at. Each is one line of
// printable ASCII.
func (r *Request) Unmatched(cs []Container) []string {
	if r.Empty() {
		return nil
	}
	var names, out []string
	for i := range cs {
		names = append(names, cs[i].Name)
	}
	for _, n := range r.ContainerNames() {
		if slices.Contains(names, n) {
			continue
		}
		line := "container." + n + ": the pod has no container " + quoted(n)
		if hint := suggest(n, names...); hint != "" {
			line += " (" + hint + ")"
		}
		out = append(out, line)
	}
	for _, q := range []*request{r.each, r.total} {
		if q != nil && q.limits != nil {
			out = append(out, q.limits.unmatched(cs)...)
		}
	}
	return out
}

func (l *limitsRequest) unmatched(cs []Container) []string {
	var out []string
	for i := range l.entries {
		t := &l.entries[i].target
		if t.kind != targetPath || slices.ContainsFunc(cs, func(c Container) bool { return mountOf(&c, t.path) != nil }) {
			continue
		}
		out = append(out, l.key+": entry "+strconv.Itoa(l.entries[i].number)+": no container has a mount at "+quoted(t.path))
	}
	return out
}
