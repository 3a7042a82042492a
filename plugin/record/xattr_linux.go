package record

import (
	"os"

	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
)

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

// IsForeign reports whether another user owns the directory. Records there are not
// trusted.
func IsForeign(owner int) bool { return owner != 0 && owner != os.Geteuid() }

// Write stores the record of a cgroup.
func Write(c cgroupfs.Cgroup, r *Record) error {
	data, err := r.Marshal(MaxSize)
	if err != nil {
		return err
	}
	return WriteRaw(c, r.Kind, data)
}

// WriteRaw puts the bytes of a record of a kind to its place.
func WriteRaw(c cgroupfs.Cgroup, kind string, data []byte) error {
	dir, xattr := PlaceOf(c, kind)
	return dir.WriteXattr(xattr, data)
}

// Remove removes the record of a cgroup of a kind. It is no error if there is none.
func Remove(c cgroupfs.Cgroup, kind string) error {
	dir, xattr := PlaceOf(c, kind)
	return dir.RemoveXattr(xattr)
}
