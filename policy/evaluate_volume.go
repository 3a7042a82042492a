package policy

import (
	"slices"

	"github.com/nri-blkio/nri-blkio/policy/quote"
	"github.com/nri-blkio/nri-blkio/policy/spelling"
)

// volume limits the mounts that are known to be of a volume, as a path limits
// the mount that it is on. Where there is none in a container, that is an error
// if the annotation names the container.
func (e *evaluation) volume(cs []Container) {
	t := &e.entry.target
	if e.isAmbiguous(cs) {
		e.fail(e.limits.errorOf(e.entry, Invalid, &problem{
			"ambiguous volume name " + quote.Text(t.volume) + ": a volume of the pod and a PersistentVolume have it",
			"write the path of the mount in the container",
		}))
		return
	}
	found := false
	for i := range cs {
		for _, k := range e.index(cs, i).volumes[t.volume] {
			found = true
			e.explicit(&cs[i], &cs[i].Mounts[k].Backing, t.name())
		}
	}
	switch {
	case found:
	case e.scope == scopeNamed:
		e.fail(e.limits.errorOf(e.entry, Invalid, e.noVolume(&cs[0])))
	default:
		e.skip(t.name(), "the container has no mount that is known to be of this volume")
	}
}

// isAmbiguous reports whether mounts of two volumes have the name of the target. It
// is that of one of them, and nothing on the node tells which.
func (e *evaluation) isAmbiguous(cs []Container) bool {
	plugin := ""
	for i := range cs {
		for _, k := range e.index(cs, i).volumes[e.entry.target.volume] {
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

// noVolume looks for a name that may have been meant, though not for the tenth
// mistake, see noMount.
func (e *evaluation) noVolume(c *Container) *problem {
	volume := e.entry.target.volume
	p := &problem{cause: "unknown volume " + quote.Text(volume) + ": no mount of the container is known to come from it"}
	if len(e.out.Errors) < maxHints {
		var names []string
		for i := range c.Mounts {
			if n := c.Mounts[i].Volume; n != "" {
				names = append(names, n)
			}
		}
		slices.Sort(names) // a volume may be mounted twice
		p.hint = spelling.Hint(volume, slices.Compact(names)...)
	}
	if p.hint == "" {
		// What to do comes first: the end of a long line is cut.
		p.hint = "write the path of the mount: the kubelet's directories tell the names of emptyDir, configMap, secret, projected, " +
			"downwardAPI and inline CSI volumes, not of hostPath volumes, claims, raw block and image volumes"
	}
	return p
}
