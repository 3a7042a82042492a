package blkio

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
)

// Dev is a block device number.
type Dev struct {
	Major, Minor uint32
}

// DevOf decodes the st_rdev or st_dev of a stat call:
//
//	bits 0-7 and 20-43   minor
//	bits 8-19 and 44-63  major
//
// Source: gnu_dev_major and gnu_dev_minor in sys/sysmacros.h of glibc.
func DevOf(number uint64) Dev {
	return Dev{
		Major: uint32(number>>8)&0xfff | uint32(number>>32)&^uint32(0xfff),
		Minor: uint32(number)&0xff | uint32(number>>12)&^uint32(0xff),
	}
}

// ParseDev parses "MAJ:MIN", the form of sysfs, mountinfo and the io files.
func ParseDev(s string) (Dev, error) {
	major, minor, ok := strings.Cut(s, ":")
	if !ok {
		return Dev{}, fmt.Errorf("parse device number %q: not MAJ:MIN", s)
	}
	ma, err := strconv.ParseUint(major, 10, 32)
	if err != nil {
		return Dev{}, fmt.Errorf("parse device number %q: %w", s, err)
	}
	mi, err := strconv.ParseUint(minor, 10, 32)
	if err != nil {
		return Dev{}, fmt.Errorf("parse device number %q: %w", s, err)
	}
	return Dev{Major: uint32(ma), Minor: uint32(mi)}, nil
}

// String is the inverse of ParseDev.
func (d Dev) String() string {
	return strconv.FormatUint(uint64(d.Major), 10) + ":" + strconv.FormatUint(uint64(d.Minor), 10)
}

// Compare orders devices by major, then minor number.
func (d Dev) Compare(o Dev) int {
	return cmp.Or(cmp.Compare(d.Major, o.Major), cmp.Compare(d.Minor, o.Minor))
}
