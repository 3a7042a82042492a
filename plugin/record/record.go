package record

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/policy"
)

// Xattr is the extended attribute that holds a pod's Record, on the directory of
// its cgroup. A container's is on the pod's directory, too, with a name of its own: see
// cgroupfs.Cgroup.Above. The records die with the pod's cgroup, so there is no database
// that could disagree with the kernel.
const Xattr = "user.nri-blkio"

// Version is raised when an older program could misread a record.
const Version = 1

// The kinds of cgroup that carry a record.
const (
	KindContainer = "container"
	KindPod       = "pod"
)

// Record says what this program put on one cgroup, for whom, and why. It is
// all that run, status and clear share.
type Record struct {
	Version     int      `json:"v"`
	Kind        string   `json:"kind"` // KindContainer or KindPod
	Namespace   string   `json:"namespace"`
	Pod         string   `json:"pod"`
	UID         string   `json:"uid"`
	Container   string   `json:"container,omitempty"`
	ContainerID string   `json:"containerID,omitempty"`
	Limits      []Limit  `json:"limits,omitempty"`     // sorted by device
	Weight      uint32   `json:"weight,omitempty"`     // io.weight; 0: none asked
	WeightFrom  string   `json:"weightFrom,omitempty"` // the annotation
	Skipped     []string `json:"skipped,omitempty"`
	Warnings    []string `json:"warnings,omitempty"`
	// Error is what was asked for and is not enforced, in one line.
	Error string `json:"error,omitempty"`
	// Observed marks limits that were decided and not written (mode: observe).
	Observed bool `json:"observed,omitempty"`
	// Cleared marks a cgroup that an operator took the limits off; run leaves
	// it alone for as long as the cgroup lives.
	Cleared bool `json:"cleared,omitempty"`
	// Dropped, as lines of io.max, and DroppedWeight are values of the OCI spec that this
	// program put there and that are not wanted any more. The runtime writes them back
	// with each update of the container's resources.
	Dropped       []string `json:"dropped,omitempty"`
	DroppedWeight uint32   `json:"droppedWeight,omitempty"`
	// Exits, on a pod's cgroup, are its containers that have ended, the newest
	// last.
	Exits []Exit `json:"exits,omitempty"`
}

// Limit is one value of one disk.
type Limit struct {
	Dev    string        `json:"dev"`  // MAJ:MIN
	Disk   string        `json:"disk"` // kernel name at the time
	Key    string        `json:"key"`
	Rate   blkio.Amount  `json:"rate"`
	Source policy.Source `json:"source"`
}

// ErrParse is the error of a record that was read and cannot be understood.
var ErrParse = errors.New("parse record " + Xattr)

// Parse decodes a record. One of a newer, incompatible program is an
// error: its fields may mean something else.
func Parse(data []byte) (*Record, error) {
	var r Record
	if err := json.Unmarshal(data, &r); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrParse, err)
	}
	if r.Version != Version {
		return nil, fmt.Errorf("%w: version %d, this program knows %d", ErrParse, r.Version, Version)
	}
	return &r, nil
}

// Marshal is the inverse of Parse.
func (r *Record) Marshal() []byte {
	data, err := json.Marshal(r)
	if err != nil {
		panic(err) // strings and numbers only
	}
	return data
}

// DevLimits are the recorded limits by device.
func (r *Record) DevLimits() map[blkio.Dev]blkio.Limits {
	out := make(map[blkio.Dev]blkio.Limits, len(r.Limits))
	for _, l := range r.Limits {
		dev, err := blkio.ParseDev(l.Dev)
		key, ok := blkio.ParseKey(blkio.IOMax, l.Key)
		if err != nil || !ok {
			continue // a later program's key: not ours to touch
		}
		limits := out[dev]
		limits[key] = l.Rate
		out[dev] = limits
	}
	return out
}

// Granted returns what a record says is in force of what was asked for, in the form of a
// decision. Of no record that is nothing.
func (r *Record) Granted() policy.Desired {
	if r == nil || r.Observed || r.Cleared {
		return policy.Desired{}
	}
	out := policy.Desired{Weight: r.Weight, WeightSource: policy.Source{Kind: policy.FromAnnotation, Name: r.WeightFrom}}
	for _, l := range r.Limits { // sorted by device
		dev, err := blkio.ParseDev(l.Dev)
		key, ok := blkio.ParseKey(blkio.IOMax, l.Key)
		if err != nil || !ok || l.Source.Kind == policy.FromBackstop {
			continue
		}
		if n := len(out.Disks); n == 0 || out.Disks[n-1].Disk.Dev != dev {
			out.Disks = append(out.Disks, policy.DiskLimits{Disk: blkio.Disk{Dev: dev, Name: l.Disk}})
		}
		last := &out.Disks[len(out.Disks)-1]
		last.Limits[key], last.Sources[key] = l.Rate, l.Source
	}
	return out
}

// Put reports whether a value of the OCI spec is one that this program put there, by what
// it has recorded of it.
func (r *Record) Put(value cgroupfs.Replacement) bool {
	if slices.Contains(r.Dropped, SpecLine(value)) {
		return true
	}
	return !r.Observed && r.DevLimits()[value.Dev][value.Key] == value.From
}

// SpecLine is a value of the spec in the form of io.max.
func SpecLine(value cgroupfs.Replacement) string {
	line := blkio.DevLimits{Dev: value.Dev}
	line.Limits[value.Key] = value.From
	return line.String()
}

// PlaceOf returns the directory and the attribute that hold the record of a cgroup.
func PlaceOf(c cgroupfs.Cgroup, kind string) (dir cgroupfs.Cgroup, xattr string) {
	if kind == KindContainer {
		return c.Above(Xattr)
	}
	return c, Xattr
}

// Read reads the record of a cgroup of a kind, KindContainer or KindPod; nil where
// there is none that can be trusted. ErrGone if the cgroup is not there.
func Read(c cgroupfs.Cgroup, kind string) (*Record, error) {
	data, err := ReadRaw(c, kind)
	if err != nil || data == nil {
		return nil, err
	}
	return Trusted(c, kind, data)
}

// ReadRaw returns the bytes of a record, nil if there is none.
func ReadRaw(c cgroupfs.Cgroup, kind string) ([]byte, error) {
	dir, xattr := PlaceOf(c, kind)
	data, err := dir.ReadXattr(xattr)
	if err == nil && kind == KindContainer {
		_, err = c.ID() // the pod's directory may outlast it
	}
	return data, err
}

// Trusted decodes a record unless another user could have written it: the
// owner of a directory may set user.* attributes.
func Trusted(c cgroupfs.Cgroup, kind string, data []byte) (*Record, error) {
	if dir, _ := PlaceOf(c, kind); Foreign(dir) {
		return nil, nil
	}
	r, err := Parse(data)
	if err != nil || (r.Kind == KindContainer) != (kind == KindContainer) {
		return nil, err
	}
	return r, nil
}

// ParseAttribute decodes a record that a walk has found; nil where it cannot be trusted.
func ParseAttribute(a cgroupfs.Attribute) (*Record, error) {
	if IsForeign(a.Owner) {
		return nil, nil
	}
	r, err := Parse(a.Value)
	if err != nil || (r.Kind == KindContainer) != a.OnParent {
		return nil, err
	}
	return r, nil
}

// Foreign says that a cgroup's directory belongs to another user.
func Foreign(c cgroupfs.Cgroup) bool {
	uid, err := c.Owner()
	return err == nil && IsForeign(uid)
}

// IsForeign says that a directory's owner is another user, whose records count for
// nothing.
func IsForeign(owner int) bool { return owner != 0 && owner != os.Geteuid() }

// Write puts the record of a cgroup to its place.
func Write(c cgroupfs.Cgroup, r *Record) error {
	dir, xattr := PlaceOf(c, r.Kind)
	return dir.WriteXattr(xattr, r.Marshal())
}

// Remove removes the record of a cgroup of a kind. It is no error if there is none.
func Remove(c cgroupfs.Cgroup, kind string) error {
	dir, xattr := PlaceOf(c, kind)
	return dir.RemoveXattr(xattr)
}

// LimitsOf returns the limits of a decision in the form of a record.
func LimitsOf(disks []policy.DiskLimits) []Limit {
	var out []Limit
	for _, d := range disks {
		for k, rate := range d.Limits {
			if rate == blkio.Unset {
				continue
			}
			out = append(out, Limit{
				Dev: d.Disk.Dev.String(), Disk: d.Disk.Name,
				Key: blkio.Key(k).String(), Rate: rate, Source: d.Sources[k],
			})
		}
	}
	return out
}

// Empty says that nothing is asked for and nothing has to be told.
func (r *Record) Empty() bool {
	return len(r.Limits) == 0 && r.Weight == 0 && r.Error == "" && len(r.Warnings) == 0 && len(r.Skipped) == 0 && len(r.Exits) == 0 &&
		len(r.Dropped) == 0 && r.DroppedWeight == 0
}

// Missing are the limits of another record for what this one has none.
func (r *Record) Missing(o *Record) []Limit {
	var out []Limit
	for _, l := range o.Limits {
		if !slices.ContainsFunc(r.Limits, func(m Limit) bool { return m.Dev == l.Dev && m.Key == l.Key }) {
			out = append(out, l)
		}
	}
	return out
}

// Names says whether a record has the values of another: what it says beside
// them may differ.
func (r *Record) Names(o *Record) bool {
	return r != nil && r.Weight == o.Weight && r.Observed == o.Observed && slices.Equal(r.Limits, o.Limits)
}

// Equal reports whether two records say the same. Either may be nil.
func (r *Record) Equal(o *Record) bool {
	if r == nil || o == nil {
		return r == o
	}
	a, b := *r, *o
	if !slices.Equal(a.Limits, b.Limits) || !slices.Equal(a.Skipped, b.Skipped) || !slices.Equal(a.Warnings, b.Warnings) ||
		!slices.Equal(a.Dropped, b.Dropped) || !slices.EqualFunc(a.Exits, b.Exits, Exit.equal) {
		return false
	}
	return a.Version == b.Version && a.Kind == b.Kind && a.Namespace == b.Namespace && a.Pod == b.Pod &&
		a.UID == b.UID && a.Container == b.Container && a.ContainerID == b.ContainerID &&
		a.Weight == b.Weight && a.DroppedWeight == b.DroppedWeight && a.WeightFrom == b.WeightFrom && a.Error == b.Error && a.Observed == b.Observed && a.Cleared == b.Cleared
}
