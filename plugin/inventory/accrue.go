package inventory

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy"
)

// history adds the disks that were found in a container before to those that are found now.
type history struct {
	paths []string             // that the request names, sorted
	gone  func(blkio.Dev) bool // reports whether the node has no such disk
}

func (f *Finder) history(pod *Pod) history {
	return history{pod.Targets.Paths, func(dev blkio.Dev) bool { return f.Storage.Device(dev).Missing }}
}

// accrue adds the disks that were found in a running container before to those that are found now. A disk that
// the container could write to once is limited for as long as it runs. The container may still have a
// filesystem that the host has unmounted, in another place or as an open file. A disk that the node does not
// have any more is not added. It is found again if it returns.
func (h history) accrue(facts, before *policy.Container) {
	facts.Rootfs = *h.both(&facts.Rootfs, &before.Rootfs)
	if len(before.Mounts) < len(facts.Mounts) {
		return // it was not resolved before
	}
	for i := range facts.Mounts {
		h.accrueMount(&facts.Mounts[i], &before.Mounts[i])
	}
}

func (h history) accrueMount(m, old *policy.Mount) {
	below := map[string]*blkio.Backing{}
	var unmounted []policy.Below
	for _, b := range old.Below {
		if h.isNamed(b.Path) {
			below[b.Path] = b.Backing
		} else {
			unmounted = append(unmounted, b) // or not: then it is among the new ones
		}
	}
	for _, b := range m.Below {
		// The disks to which the path led before stay.
		below[b.Path] = h.both(b.Backing, old.BackingOf(b.Path))
	}
	m.Backing = h.both(m.Backing, old.Backing)
	h.addDisks(m, below, unmounted)
	m.Below = nil
	for _, path := range slices.Sorted(maps.Keys(below)) {
		m.Below = append(m.Below, policy.Below{Path: path, Backing: below[path]})
	}
}

// isNamed reports whether the request names a path that is at dir or below it.
func (h history) isNamed(dir string) bool { return hasPathIn(h.paths, dir) }

// addDisks adds the disks of mounts that only "*" covers: one entry for all of them that no other entry has. A
// container that others mount into, such as one with the kubelet's directory, gets thousands of such mounts, on
// few disks.
func (h history) addDisks(m *policy.Mount, below map[string]*blkio.Backing, unmounted []policy.Below) {
	seen := map[blkio.Dev]bool{}
	note := func(b *blkio.Backing) {
		for _, d := range b.Disks {
			seen[d.Dev] = true
		}
	}
	if !m.ReadOnly { // which the mounts below it are not
		note(m.Backing)
	}
	for _, b := range below {
		note(b)
	}
	at, rest := "", blkio.Backing{}
	for _, b := range unmounted {
		for _, d := range b.Backing.Disks {
			if seen[d.Dev] || h.gone(d.Dev) {
				continue
			}
			seen[d.Dev] = true
			if at == "" {
				at, rest = b.Path, *b.Backing
				rest.Disks, rest.Mountpoint = nil, "" // the filesystem is not mounted there any more, so there is nothing to sync
			}
			rest.Disks = append(rest.Disks, d)
		}
	}
	if at == "" {
		return
	}
	slices.SortFunc(rest.Disks, func(a, b blkio.Disk) int { return a.Dev.Compare(b.Dev) })
	if now, taken := below[at]; taken { // one without these disks is mounted there now
		below[at] = h.both(now, &rest)
	} else {
		below[at] = &rest
	}
}

func (h history) both(now, before *blkio.Backing) *blkio.Backing {
	if len(before.Disks) == 0 {
		return now
	}
	if len(now.Disks) == 0 {
		out := *before
		out.Err = now.Err // it has to be resolved again
		out.Missing = out.Missing || now.Missing
		return &out
	}
	out := *now
	out.Disks = slices.Clone(now.Disks)
	for _, d := range before.Disks {
		if !slices.Contains(out.Disks, d) && !h.gone(d.Dev) {
			out.Disks = append(out.Disks, d)
		}
	}
	slices.SortFunc(out.Disks, func(a, b blkio.Disk) int { return a.Dev.Compare(b.Dev) })
	out.Warning = cmp.Or(now.Warning, before.Warning)
	return &out
}

// hasPathIn reports whether one of these paths, which are sorted and clean, is a
// clean directory or in it.
func hasPathIn(paths []string, dir string) bool {
	dir = strings.TrimSuffix(dir, "/")
	if _, ok := slices.BinarySearch(paths, dir); ok {
		return true
	}
	i, _ := slices.BinarySearch(paths, dir+"/")
	return i < len(paths) && strings.HasPrefix(paths[i], dir+"/")
}
