package inventory

import (
	"strings"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/internal/fakenode"
)

var (
	rootDisk = blkio.Disk{Dev: blkio.Dev{Major: 254}, Name: "vda"}
	dataDisk = blkio.Disk{Dev: blkio.Dev{Major: 254, Minor: 16}, Name: "vdb"}
)

func on(disk blkio.Disk) blkio.Backing { return fakenode.On(disk) }

func twoDisks(path string) blkio.Backing {
	switch {
	case strings.HasPrefix(path, "/mnt/data"):
		return on(dataDisk)
	case strings.HasPrefix(path, "/mnt/mem"):
		return blkio.Backing{FSType: "tmpfs", Reason: "tmpfs is memory, not a disk"}
	}
	return on(rootDisk)
}

func bind(src, dst string, opts ...string) Mount {
	return Mount{Type: "bind", Source: src, Destination: dst, Options: ParseOptions(opts...)}
}
