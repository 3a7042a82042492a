package storage

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// The masks of statmount(2) and the fields that they ask for. Kernels before 6.13
// have no subtype and no source.
//
// Source: include/uapi/linux/mount.h.
const (
	statSuperblock = 0x1 // device
	statMount      = 0x2 // IDs, peer group, master
	statRoot       = 0x8
	statMountpoint = 0x10
	statType       = 0x20
	statOptions    = 0x80
	statSubtype    = 0x100
	statSource     = 0x200

	statAll = statSuperblock | statMount | statRoot | statMountpoint | statType | statOptions | statSubtype | statSource
)

// The offsets of the fields of struct statmount. Texts are given by their offset from the end of the struct,
// and end with a zero.
const (
	atSize        = 0 // of all, with the texts
	atOptions     = 4
	atMask        = 8
	atMajor       = 16
	atMinor       = 20
	atType        = 36
	atOldID       = 56
	atOldParent   = 60
	atPeers       = 80
	atMaster      = 88
	atRoot        = 104
	atMountpoint  = 108
	atSubtype     = 120
	atSource      = 124
	statmountSize = 512
)

// listAll is the mount ID that means all mounts of a namespace, LSMT_ROOT.
const listAll = ^uint64(0)

// mountRequest is struct mnt_id_req.
type mountRequest struct {
	size, _   uint32
	id        uint64
	param     uint64 // the mask of statmount, or the ID that listmount goes on after
	namespace uint64
}

// listMounts returns the unique IDs of the mounts of a mount namespace in ascending
// order: those that can be reached from its root. It reuses ids.
//
// Source: listmount(2), Linux 6.8; another namespace than the caller's 6.11.
func listMounts(namespace uint64, ids []uint64) ([]uint64, error) {
	ids = ids[:0]
	for {
		if len(ids) == cap(ids) {
			ids = append(ids, make([]uint64, 8192)...)[:len(ids)]
		}
		req := mountRequest{size: unix.MNT_ID_REQ_SIZE_VER1, id: listAll, namespace: namespace}
		if len(ids) > 0 {
			req.param = ids[len(ids)-1]
		}
		free := ids[len(ids):cap(ids)]
		n, _, errno := unix.Syscall6(unix.SYS_LISTMOUNT, uintptr(unsafe.Pointer(&req)), uintptr(unsafe.Pointer(&free[0])), uintptr(len(free)), 0, 0, 0)
		if errno != 0 {
			return nil, fmt.Errorf("listmount: %w", errno)
		}
		ids = ids[:len(ids)+int(n)]
		if int(n) < len(free) {
			return ids, nil
		}
	}
}

// mountStatus is the buffer that statmount(2) has filled.
type mountStatus []byte

// statMounted fills buf with the fields of a mount that the mask has.
func statMounted(namespace, id, mask uint64, buf []byte) (mountStatus, error) {
	req := mountRequest{size: unix.MNT_ID_REQ_SIZE_VER1, id: id, param: mask, namespace: namespace}
	_, _, errno := unix.Syscall6(unix.SYS_STATMOUNT, uintptr(unsafe.Pointer(&req)), uintptr(unsafe.Pointer(&buf[0])), uintptr(len(buf)), 0, 0, 0)
	if errno != 0 {
		return nil, fmt.Errorf("statmount: %w", errno)
	}
	return buf, nil
}

func (s mountStatus) uint32(at int) uint32 { return binary.NativeEndian.Uint32(s[at:]) }

func (s mountStatus) uint64(at int) uint64 { return binary.NativeEndian.Uint64(s[at:]) }

func (s mountStatus) has(mask uint64) bool { return s.uint64(atMask)&mask != 0 }

// text returns a text field, nil if it is not there.
func (s mountStatus) text(mask uint64, at int) []byte {
	offset := uint64(s.uint32(at)) + statmountSize
	if !s.has(mask) || offset > uint64(len(s)) {
		return nil
	}
	text, _, _ := bytes.Cut(s[offset:], []byte{0})
	return text
}

// mount returns nil for a mount that has no path from the root.
func (s mountStatus) mount() *Mount {
	m := &Mount{
		ID: int(s.uint32(atOldID)), Parent: int(s.uint32(atOldParent)),
		Dev:   blkio.Dev{Major: s.uint32(atMajor), Minor: s.uint32(atMinor)},
		Peers: int(s.uint64(atPeers)), Master: int(s.uint64(atMaster)),
		FSType: string(s.text(statType, atType)), Source: string(s.text(statSource, atSource)),
	}
	if subtype := s.text(statSubtype, atSubtype); len(subtype) > 0 {
		m.FSType += "." + string(subtype)
	}
	if root := s.text(statRoot, atRoot); len(root) <= maxMountPath {
		m.Root = string(root)
	}
	m.setOptions(string(s.text(statOptions, atOptions)))
	if !s.has(statOptions) && !s.has(statType) {
		m.Unreadable = badLine
	}
	point := s.text(statMountpoint, atMountpoint)
	if len(point) == 0 || point[0] != '/' || !m.setMountpoint(path.Clean(string(point)), len(point) <= maxMountPath) {
		return nil
	}
	return m
}

// mountNamespace returns the ID of the mount namespace whose mountinfo file this is.
// It takes the right to trace the process of the file, unless that is the caller.
//
// Source: NS_GET_MNTNS_ID of ioctl_nsfs(2), Linux 6.11.
func mountNamespace(mountinfo string) (uint64, error) {
	f, err := os.Open(path.Join(path.Dir(mountinfo), "ns/mnt"))
	if err != nil {
		return 0, err
	}
	defer f.Close()
	var id uint64
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), unix.NS_GET_MNTNS_ID, uintptr(unsafe.Pointer(&id)))
	runtime.KeepAlive(f)
	if errno != 0 {
		return 0, fmt.Errorf("ID of the mount namespace %s: %w", f.Name(), errno)
	}
	return id, nil
}
