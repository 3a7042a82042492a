package annotation

import "slices"

// Targets has all that the limits and weights of a pod can select. Only disks that one of them covers are
// searched for.
type Targets struct {
	Paths   []string // sorted, distinct
	Volumes []string // names, sorted, distinct
	Widest  Width    // of the other targets
	Weights bool     // some of them have a weight
	Disks   bool     // some of them are disk:GLOB, which also selects disks below others
}

// Width orders the targets that select other disks than those of one mount.
type Width uint8

// The widths.
const (
	OnlyMounts Width = iota // neither "rootfs" nor "*"
	Rootfs                  // "rootfs"
	Star                    // "*" or disk:GLOB, which include the writable layer
)

// HasStar reports whether "*" or disk:GLOB is one of the targets.
func (t Targets) HasStar() bool { return t.Widest == Star }

// HasRootfs reports whether a target selects the writable layer, which "rootfs" and "*" do.
func (t Targets) HasRootfs() bool { return t.Widest >= Rootfs }

// add adds the targets of a list, which may be nil.
func (t *Targets) add(l *List) {
	if l == nil {
		return
	}
	for i := range l.Entries {
		e := &l.Entries[i]
		t.Weights = t.Weights || e.Weight != 0
		switch e.Target.Kind {
		case TargetPath:
			t.Paths = append(t.Paths, e.Target.Path)
		case TargetVolume:
			t.Volumes = append(t.Volumes, e.Target.Volume)
		case TargetRootfs:
			t.Widest = max(t.Widest, Rootfs)
		case TargetStar:
			t.Widest = Star
		case TargetDisk:
			t.Widest, t.Disks = Star, true
		}
	}
}

func (t *Targets) tidy() {
	for _, list := range []*[]string{&t.Paths, &t.Volumes} {
		slices.Sort(*list)
		*list = slices.Compact(*list)
	}
}

// And returns the targets of t and of all others. Mostly these are those of one of them, and their lists are shared.
func (t Targets) And(others ...Targets) Targets {
	for _, o := range others {
		switch {
		case t.Covers(o):
		case o.Covers(t):
			t = o
		default:
			t = Targets{
				Paths: slices.Concat(t.Paths, o.Paths), Volumes: slices.Concat(t.Volumes, o.Volumes),
				Widest: max(t.Widest, o.Widest), Weights: t.Weights || o.Weights, Disks: t.Disks || o.Disks,
			}
			t.tidy()
		}
	}
	return t
}

// Covers reports whether each target of o is one of t.
func (t Targets) Covers(o Targets) bool {
	return t.Widest >= o.Widest && (t.Weights || !o.Weights) && (t.Disks || !o.Disks) &&
		containsAll(t.Paths, o.Paths) && containsAll(t.Volumes, o.Volumes)
}

// containsAll reports whether a sorted list has each element of another one.
func containsAll(all, some []string) bool {
	if len(some) == 0 || len(all) == len(some) && &all[0] == &some[0] {
		return true // mostly it is the same list, which a tenant can make long
	}
	return !slices.ContainsFunc(some, func(s string) bool {
		_, found := slices.BinarySearch(all, s)
		return !found
	})
}
