package policy

import (
	"cmp"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/nri-blkio/nri-blkio/policy/annotation"
	"github.com/nri-blkio/nri-blkio/policy/quote"
	"github.com/nri-blkio/nri-blkio/policy/spelling"
)

// Volume is a volume of a pod, as the API server or a manifest has it: a claim, or one of another kind whose name the runtime does
// not see.
type Volume struct {
	Name   string  `json:"name"`             // in the pod
	Claim  string  `json:"claim,omitempty"`  // "" for none; for an ephemeral volume, that of the generated claim
	Places []Place `json:"places,omitempty"` // sorted in a document
	// Limits is the text of the claim's annotation; nil without one.
	Limits *string `json:"limits,omitempty"`
	// Class is the VolumeAttributesClass that the claim asks for, nil without one. Whether the CSI driver has applied it does not
	// matter: the plugin enforces the rates itself.
	Class *ClaimClass `json:"class,omitempty"`
	// Size is the size of the claim in bytes, zero if it is unknown. Limits and rates of the class may grow with it.
	Size int64 `json:"size,omitempty"`
	// Attachment has the limits that the storage driver wrote for the volume on this node, nil without any.
	Attachment *ClaimAttachment `json:"attachment,omitempty"`
	// Omitted has the parts of the limits that are unknown, each with the reason.
	Omitted map[string]string `json:"omitted,omitempty"`
}

// Place is where a container has a volume.
type Place struct {
	Container string `json:"container"`
	Path      string `json:"path"` // absolute and clean; of a device for a raw block volume
}

// Compare orders places by container and path.
func (p Place) Compare(o Place) int {
	return cmp.Or(strings.Compare(p.Container, o.Container), strings.Compare(p.Path, o.Path))
}

// ClaimClass is the VolumeAttributesClass of a claim, with the rates among its parameters.
type ClaimClass struct {
	Name string `json:"name"`
	// Rates has the text of each rate by the key of the parameter, see [annotation.Parameters].
	Rates map[string]string `json:"rates,omitempty"`
}

// ClaimAttachment is the part of a VolumeAttachment that limits a claim.
type ClaimAttachment struct {
	Driver string `json:"driver"`
	// Rates has the text of each rate by the key in the metadata, see [annotation.DriverKeys].
	Rates map[string]string `json:"rates,omitempty"`
}

// Volumes has the volumes of a pod whose names the runtime does not see: where its containers have them, and the limits that the claims
// among them have of their own. It does not change. The volumes of a pod are unknown for nil.
type Volumes struct {
	unknown string                   // that they are unknown, and why; "" if they are known
	named   []string                 // the names of all, sorted, distinct
	at      map[string][]volumePlace // where each container has them
	claims  []claim                  // by name
}

// volumePlace is where a container has a volume.
type volumePlace struct{ volume, path string }

// UnknownVolumes returns volumes that are unknown for a reason.
func UnknownVolumes(reason string) *Volumes {
	return &Volumes{unknown: "the volumes of the pod are unknown: " + reason}
}

// NewVolumes returns the volumes of a pod.
func NewVolumes(volumes []Volume) *Volumes {
	out := &Volumes{}
	for i := range volumes {
		v := &volumes[i]
		out.place(v)
		if v.Claim != "" {
			out.addClaim(v)
		}
	}
	for i := range out.claims {
		c := &out.claims[i]
		slices.SortFunc(c.places, Place.Compare)
		c.places = slices.Compact(c.places)
	}
	slices.Sort(out.named)
	out.named = slices.Compact(out.named)
	return out
}

// place adds the name and the places of a volume.
func (v *Volumes) place(of *Volume) {
	v.named = append(v.named, of.Name)
	for _, p := range of.Places {
		if v.at == nil {
			v.at = map[string][]volumePlace{}
		}
		v.at[p.Container] = append(v.at[p.Container], volumePlace{of.Name, p.Path})
	}
}

// Known reports whether the volumes are known.
func (v *Volumes) Known() bool { return v != nil && v.unknown == "" }

// Equal reports whether two values have the same volumes, at the same places and with the same limits.
func (v *Volumes) Equal(o *Volumes) bool {
	return v == o || v != nil && o != nil && reflect.DeepEqual(v, o)
}

// targets returns the paths of the claims that have limits of their own, and of the volumes that are named.
func (v *Volumes) targets(named []string) annotation.Targets {
	var paths []string
	for i := range v.claims {
		if c := &v.claims[i]; c.hasLimits() {
			for _, p := range c.places {
				paths = append(paths, p.Path)
			}
		}
	}
	for _, places := range v.at {
		for _, p := range places {
			if _, isNamed := slices.BinarySearch(named, p.volume); isNamed {
				paths = append(paths, p.path)
			}
		}
	}
	slices.Sort(paths)
	return annotation.Targets{Paths: slices.Compact(paths)}
}

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
