package record

import "github.com/nri-blkio/nri-blkio/blkio/cgroupfs"

// PlaceOf returns the directory and the attribute of the record of a cgroup. kind is
// KindContainer or KindPod.
func PlaceOf(c cgroupfs.Cgroup, kind string) (dir cgroupfs.Cgroup, xattr string) {
	if kind == KindContainer {
		return c.Above(Xattr)
	}
	return c, Xattr
}

// Read reads the record of a cgroup. It returns nil without an error if there is none, or
// if it cannot be trusted, see Trusted. The error is ErrGone if the cgroup was removed.
func Read(c cgroupfs.Cgroup, kind string) (*Record, error) {
	data, err := ReadRaw(c, kind)
	if err != nil || data == nil {
		return nil, err
	}
	return Trusted(c, kind, data)
}

// ReadRaw returns the bytes of a record, or nil if there is none.
func ReadRaw(c cgroupfs.Cgroup, kind string) ([]byte, error) {
	dir, xattr := PlaceOf(c, kind)
	data, err := dir.ReadXattr(xattr)
	if err == nil && kind == KindContainer {
		_, err = c.ID() // the pod's directory may outlast it
	}
	return data, err
}

// Trusted decodes a record. It returns nil without an error if another user could have
// written the record: the owner of a directory may set its user.* attributes.
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

// ParseAttribute decodes a record that cgroupfs.Hierarchy.Walk has found. It returns nil
// without an error if the record cannot be trusted.
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

// Foreign reports whether another user owns a cgroup's directory.
func Foreign(c cgroupfs.Cgroup) bool {
	uid, err := c.Owner()
	return err == nil && IsForeign(uid)
}

// IsForeign reports whether a UID is neither 0 nor that of this process. Records on a
// directory of such an owner are not trusted.
func IsForeign(owner int) bool { return owner != 0 && !cgroupfs.IsOwn(owner) }

// Write stores the record of a cgroup.
func Write(c cgroupfs.Cgroup, r *Record) error {
	data, err := r.Marshal(MaxSize)
	if err != nil {
		return err
	}
	return WriteRaw(c, r.Kind, data)
}

// WriteRaw stores the bytes of a record.
func WriteRaw(c cgroupfs.Cgroup, kind string, data []byte) error {
	dir, xattr := PlaceOf(c, kind)
	return dir.WriteXattr(xattr, data)
}

// Remove removes the record of a cgroup. It is no error if there is none.
func Remove(c cgroupfs.Cgroup, kind string) error {
	dir, xattr := PlaceOf(c, kind)
	return dir.RemoveXattr(xattr)
}
