package repair

import "github.com/nri-blkio/nri-blkio/blkio/writeback"

// pageCache opens the filesystems that passes go over, see kernelCache. In tests it is a
// model of the kernel's.
type pageCache interface {
	Open(mountpoint, fstype string) (mount, error)
	Close()
}

// mount is an open filesystem, see writeback.Mount.
type mount interface {
	Open(in writeback.Inode) (openFile, error)
	Close() error
}

// openFile is an open inode, see writeback.File.
type openFile interface {
	Owner() (writeback.Owner, error)
	Path() (below string, ok bool)
	WriteOut(offset, length int64) error
	Drop(offset, length int64) error
	Cached(offset, length int64) (_ writeback.Cached, ok bool)
	Close() error
}

// kernelCache is the page cache of the running kernel.
type kernelCache struct{ *writeback.OwnerReader }

func (k kernelCache) Open(mountpoint, fstype string) (mount, error) {
	m, err := writeback.OpenMount(mountpoint, fstype)
	if err != nil {
		return nil, err
	}
	return kernelMount{m, k.OwnerReader}, nil
}

type kernelMount struct {
	*writeback.Mount
	owners *writeback.OwnerReader
}

func (m kernelMount) Open(in writeback.Inode) (openFile, error) {
	f, err := m.Mount.Open(in)
	if err != nil {
		return nil, err
	}
	return kernelFile{f, m.owners}, nil
}

type kernelFile struct {
	*writeback.File
	owners *writeback.OwnerReader
}

func (f kernelFile) Owner() (writeback.Owner, error) { return f.File.Owner(f.owners) }
