package policy

import (
	"maps"
	"slices"

	"github.com/nri-blkio/nri-blkio/policy/annotation"
	"github.com/nri-blkio/nri-blkio/policy/quote"
	"github.com/nri-blkio/nri-blkio/policy/spelling"
)

// volume limits the mounts and devices of a volume, as a path limits the mount that it is on. Where there is none in a container, that
// is an error if the annotation names the container, or if the volume can be one whose name is not known.
func (e *evaluation) volume(cs []Container) {
	t := &e.entry.Target
	if e.isAmbiguous(cs) {
		if e.scope.isLenient() {
			const cause = "a volume of the pod and a PersistentVolume have this name"
			e.skip(t.Name(), cause)
			e.unenforced(t.Name(), quote.Text(t.Name())+" cannot be limited: "+cause)
			return
		}
		e.fail(e.limits.ErrorOf(e.entry, annotation.NoMount, &annotation.Problem{
			Cause: "ambiguous volume name " + quote.Text(t.Volume) + ": a volume of the pod and a PersistentVolume have it",
			Hint:  "write the path of the mount in the container",
		}))
		return
	}
	found, isUnnamed := false, false
	for i := range cs {
		x := e.index(cs, i)
		isUnnamed = isUnnamed || x.isUnnamed
		for _, k := range x.volumes[t.Volume] {
			found = true
			e.explicit(&cs[i], cs[i].Mounts[k].Backing, t.Name())
		}
	}
	switch {
	case found:
	case isUnnamed && !e.pod.volumes.Known():
		e.unknownVolumes()
	case e.scope == scopeNamed:
		e.fail(e.limits.ErrorOf(e.entry, annotation.NoMount, e.noVolume(e.index(cs, 0))))
	default:
		e.skip(t.Name(), "the container has no mount of this volume")
	}
}

// isAmbiguous reports whether mounts of two volumes have the name of the target. One of them is a PersistentVolume, and no file on the
// node shows which. While the volumes of the pod are known, none is.
func (e *evaluation) isAmbiguous(cs []Container) bool {
	plugin := ""
	for i := range cs {
		for _, k := range e.index(cs, i).volumes[e.entry.Target.Volume] {
			switch of := cs[i].Mounts[k].VolumePlugin; {
			case of == "" || of == plugin:
			case plugin == "":
				plugin = of
			default:
				return true
			}
		}
	}
	return false
}

// unknownVolumes reports a target that names a volume while the volumes of the pod are unknown. The creation of the container is tried
// again, with the same words until then.
func (e *evaluation) unknownVolumes() {
	cause := e.pod.volumes.unknown
	if e.scope.isLenient() {
		e.skip(e.entry.Target.Name(), cause)
		e.unenforced("", "")
		return
	}
	if !hasLimit(e.values) {
		e.skip(e.entry.Target.Name(), cause)
		return
	}
	e.fail(e.limits.ErrorOf(e.entry, annotation.VolumesNotKnown, &annotation.Problem{
		Cause: cause, Hint: "the cluster part of nri-blkio reports them; on a node without it, write the path of the mount",
	}))
}

// noVolume returns the error for a volume that the container does not have, with a similar name as a hint for the
// first mistakes, see noMount.
func (e *evaluation) noVolume(x *MountIndex) *annotation.Problem {
	name := e.entry.Target.Volume
	p := &annotation.Problem{Cause: "volume " + quote.Text(name) + " is on no mount of the container"}
	names := e.pod.volumes.named
	if _, found := slices.BinarySearch(names, name); found {
		p.Hint = "mount it, or remove the entry"
		return p
	}
	if len(e.out.Errors) < maxHints {
		names = slices.AppendSeq(slices.Clone(names), maps.Keys(x.volumes))
		slices.Sort(names)
		p.Hint = spelling.Hint(name, slices.Compact(names)...)
	}
	if p.Hint == "" {
		p.Hint = "write the name of a volume of the pod that the container mounts"
	}
	return p
}
