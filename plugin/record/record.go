package record

import (
	"slices"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/podfacts"
	"github.com/nri-blkio/nri-blkio/policy"
)

// The kinds of cgroup that carry a record.
const (
	KindContainer = "container"
	KindPod       = "pod"
)

// Xattr is the extended attribute with the Record of a pod, on the directory of the pod's
// cgroup. The record of a container is on the pod's directory as well, under a name of its
// own, see cgroupfs.Cgroup.Above. The records disappear with the pod's cgroup, so they
// cannot disagree with the kernel.
const Xattr = "user.nri-blkio"

// Record describes the settings of this program on one cgroup, with the pod and the
// sources. It is the only data that run, status and clear share. Fields with the tag "-" have another form in JSON, see
// Marshal.
type Record struct {
	Kind        string `json:"kind"` // KindContainer or KindPod
	Namespace   string `json:"namespace"`
	Pod         string `json:"pod"`
	UID         string `json:"uid"`
	Container   string `json:"container,omitempty"`   // "" for a pod
	ContainerID string `json:"containerID,omitempty"` // "" for a pod

	Settings policy.Settings `json:"-"`
	// Weights has the weights of a pod as a whole on single disks. They are not in Settings, because the Keeper
	// that divides a disk between pods can need another value of io.weight.
	Weights  policy.Settings      `json:"-"`
	Disks    map[blkio.Dev]string `json:"-"` // kernel names, at the time of the record
	Skipped  []string             `json:"skipped,omitempty"`
	Warnings []string             `json:"warnings,omitempty"`
	// Error is one line about the requested limits that are not enforced.
	Error string `json:"error,omitempty"`
	// Observed is true if the settings were decided but not written (mode: observe).
	Observed bool `json:"observed,omitempty"`
	// Cleared is true if an operator has removed the limits. Then run does not write to the
	// cgroup.
	Cleared bool `json:"cleared,omitempty"`
	// Unvetted is true while the budget of the namespace had no room for a running container, or could not be asked. A restarted
	// plugin asks it again.
	Unvetted bool `json:"unvetted,omitempty"`
	// Lowered are values that were granted and are not in force, see policy.Desired. Of a pod they
	// include those above the backstop.
	Lowered policy.Settings `json:"-"`
	// Lent has the limits that are lent to the pod of a container, see policy.Lent.Noted.
	Lent policy.Settings `json:"-"`
	// Exits are the ended containers of a pod, the newest last.
	Exits []Exit `json:"-"`
	// Edit has the annotations and labels of a pod that replace those that the runtime reports; nil for none.
	Edit *podfacts.Edit `json:"edit,omitempty"`
}

// Identity returns a record of the same cgroup without settings.
func (r *Record) Identity() Record {
	return Record{Kind: r.Kind, Namespace: r.Namespace, Pod: r.Pod, UID: r.UID, Container: r.Container, ContainerID: r.ContainerID}
}

// Granted returns the settings that were granted, without the backstop, in the form of a decision. It is empty if r is nil, and if the
// settings are observed. Those that an operator has cleared are granted still: they are in force again after the undo.
func (r *Record) Granted() policy.Desired {
	if r == nil || r.Observed {
		return policy.Desired{}
	}
	asked := r.Settings.Where(func(s policy.Setting) bool { return s.Source.Kind != policy.FromBackstop })
	return policy.Desired{Settings: asked, Lowered: r.Lowered, Disks: policy.DiskNames(asked.Join(r.Lowered), r.Disks)}
}

// IOWeight returns the weights that count, of Settings and of Weights. It is empty if they are observed
// or cleared.
func (r *Record) IOWeight() blkio.Weights {
	if r.Observed || r.Cleared {
		return blkio.Weights{}
	}
	return r.Settings.Join(r.Weights).IOWeight()
}

// Add adds those settings whose addresses r does not have. o has the names of their disks.
func (r *Record) Add(o *Record, settings policy.Settings) {
	r.Settings = r.Settings.Join(settings)
	r.Disks = policy.DiskNames(r.Settings.Join(r.Lowered).Join(r.Lent), o.Disks, r.Disks)
}

// Empty reports whether the record has nothing to show.
func (r *Record) Empty() bool {
	return len(r.Settings) == 0 && len(r.Weights) == 0 && r.Error == "" && len(r.Warnings) == 0 && len(r.Skipped) == 0 && len(r.Exits) == 0 && len(r.Lowered) == 0 && len(r.Lent) == 0 && r.Edit == nil
}

// HasSettings reports whether r has the same settings as o, and both are in force or both
// observed. r may be nil.
func (r *Record) HasSettings(o *Record) bool {
	return r != nil && r.Observed == o.Observed && slices.Equal(r.Settings, o.Settings)
}
