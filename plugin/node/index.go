package node

import "slices"

// index has parts of the state by a name. Several of them may have the same one.
type index[V comparable] map[string][]V

func (x index[V]) add(name string, part V) { x[name] = append(x[name], part) }

// remove removes a part. It does nothing if the index does not have it.
func (x index[V]) remove(name string, part V) {
	i := slices.Index(x[name], part)
	switch {
	case i < 0:
	case len(x[name]) == 1:
		delete(x, name)
	default:
		x[name] = slices.Delete(x[name], i, i+1)
	}
}

// indexes has parts of the state by facts about them that never change.
type indexes struct {
	namespaces map[string]*namespace
	byCgroup   index[*container] // without those whose cgroup is not known
	byUID      index[*pod]
}

func newIndexes() indexes {
	return indexes{namespaces: map[string]*namespace{}, byCgroup: index[*container]{}, byUID: index[*pod]{}}
}

// addContainer adds a container, unless its cgroup is not known.
func (x *indexes) addContainer(c *container) {
	if c.cgroup != "" {
		x.byCgroup.add(c.cgroup, c)
	}
}
