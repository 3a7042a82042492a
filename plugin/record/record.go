package record

import (
	"slices"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy"
)

// The kinds of cgroup that carry a record.
const (
	KindContainer = "container"
	KindPod       = "pod"
)

// Xattr is the extended attribute that holds a pod's Record, on the directory of
// its cgroup. A container's is on the pod's directory, too, with a name of its own: see
// cgroupfs.Cgroup.Above. The records die with the pod's cgroup, so there is no database
// that could disagree with the kernel.
const Xattr = "user.nri-blkio"

// Record describes the settings that this program applied to one cgroup, with the pod and
// the sources. It is the only data that run, status and clear share.
type Record struct {
	Kind                   string // KindContainer or KindPod
	Namespace, Pod, UID    string
	Container, ContainerID string // "" of a pod's

	Settings policy.Settings
	Disks    map[blkio.Dev]string // the kernel's names at the time
	Skipped  []string
	Warnings []string
	// Error is what was asked for and is not enforced, in one line.
	Error string
	// Observed is true for settings that were decided and not written (mode: observe).
	Observed bool
	// Cleared is true if an operator took the limits off; run leaves the cgroup alone for as
	// long as it lives.
	Cleared bool
	// Dropped are values of the OCI spec that this program put there and that are not wanted
	// any more. The runtime writes them back with each update of the container's resources.
	Dropped policy.Settings
	// Exits, on a pod's cgroup, are its containers that have ended, the newest last.
	Exits []Exit
}

// Granted returns what is in force of what was asked for by a record, in the form of a
// decision. Of no record that is nothing.
func (r *Record) Granted() policy.Desired {
	if r == nil || r.Observed || r.Cleared {
		return policy.Desired{}
	}
	asked := r.Settings.Where(func(s policy.Setting) bool { return s.Source.Kind != policy.FromBackstop })
	return policy.Desired{Settings: asked, Disks: policy.DiskNames(asked, r.Disks)}
}

// Put reports whether a value of the OCI spec is one that this program put there, by the
// record.
func (r *Record) Put(v blkio.Value) bool {
	if s, found := r.Dropped.Get(v.Address); found && s.Value == v {
		return true
	}
	s, found := r.Settings.Get(v.Address)
	return found && s.Value == v && !r.Observed
}

// Add adds settings of another record where r has none.
func (r *Record) Add(o *Record, settings policy.Settings) {
	r.Settings = r.Settings.Join(settings)
	r.Disks = policy.DiskNames(r.Settings, o.Disks, r.Disks)
}

// Drop adds a value of the OCI spec that is not wanted any more.
func (r *Record) Drop(v blkio.Value) {
	r.Dropped = r.Dropped.Join(policy.Settings{{Value: v}})
}

// Empty reports whether nothing is asked for and there is nothing to show.
func (r *Record) Empty() bool {
	return len(r.Settings) == 0 && r.Error == "" && len(r.Warnings) == 0 && len(r.Skipped) == 0 && len(r.Exits) == 0 && len(r.Dropped) == 0
}

// HasSettings reports whether a record has the settings of another, in force or observed.
// The receiver may be nil.
func (r *Record) HasSettings(o *Record) bool {
	return r != nil && r.Observed == o.Observed && slices.Equal(r.Settings, o.Settings)
}
