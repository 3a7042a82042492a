package policy

import (
	"slices"

	"github.com/nri-blkio/nri-blkio/policy/annotation"
	"github.com/nri-blkio/nri-blkio/policy/quote"
	"github.com/nri-blkio/nri-blkio/policy/spelling"
)

// volume limits the mounts that are known to be of a volume, as a path limits
// the mount that it is on. Where there is none in a container, that is an error
// if the annotation names the container.
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
	found := false
	for i := range cs {
		for _, k := range e.index(cs, i).volumes[t.Volume] {
			found = true
			e.explicit(&cs[i], &cs[i].Mounts[k].Backing, t.Name())
		}
	}
	switch {
	case found:
	case e.scope == scopeNamed:
		e.fail(e.limits.ErrorOf(e.entry, annotation.NoMount, e.noVolume(&cs[0])))
	default:
		e.skip(t.Name(), "the container has no mount that is known to be of this volume")
	}
}

// isAmbiguous reports whether mounts of two volumes have the name of the target. One of
// them is a PersistentVolume, and no file on the node shows which.
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

// noVolume returns the error for an unknown volume, with a similar name as a hint for the
// first mistakes, see noMount.
func (e *evaluation) noVolume(c *Container) *annotation.Problem {
	volume := e.entry.Target.Volume
	p := &annotation.Problem{Cause: "unknown volume " + quote.Text(volume) + ": no mount of the container is known to come from it"}
	if len(e.out.Errors) < maxHints {
		var names []string
		for i := range c.Mounts {
			if n := c.Mounts[i].Volume; n != "" {
				names = append(names, n)
			}
		}
		slices.Sort(names) // a volume may be mounted twice
		p.Hint = spelling.Hint(volume, slices.Compact(names)...)
	}
	if p.Hint == "" {
		// The advice comes first, because the end of a long line is cut.
		p.Hint = "write the path of the mount: @VOLUME works for emptyDir, configMap, secret, projected, " +
			"downwardAPI and inline CSI volumes, not for hostPath volumes, claims, raw block and image volumes"
	}
	return p
}
