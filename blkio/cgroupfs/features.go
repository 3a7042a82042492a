package cgroupfs

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// Features lists the kernel's I/O controls. A control counts as present if a cgroup with
// the io controller has its file. Unknown means that no cgroup has the io controller.
type Features struct {
	IOMax    blkio.Tri `json:"ioMax"`    // blk-throttle
	IOWeight blkio.Tri `json:"ioWeight"` // built in; its effect depends on the disk, see ReadIOCostQOS
	IOCost   blkio.Tri `json:"ioCost"`   // io.cost.qos, only in the host's root cgroup
	// Namespaced is true if the tree's root is the root of a cgroup namespace, and not the
	// host's.
	Namespaced bool `json:"namespaced"`
}

// Probe finds out which controls the kernel has.
func (h *Hierarchy) Probe() (Features, error) {
	var f Features
	var err error
	// Flagged CFTYPE_NOT_ON_ROOT: it is only where a parent is above.
	if f.Namespaced, err = h.exists("cgroup.events"); err != nil {
		return f, fmt.Errorf("probe cgroups: %w", err)
	}
	probe := func(dir, file string, answer *blkio.Tri) {
		if err != nil {
			return
		}
		var ok bool
		ok, err = h.exists(dir + "/" + file)
		switch {
		case err == nil && ok:
			*answer = blkio.Yes
		case err == nil:
			*answer = blkio.No
		}
	}
	if !f.Namespaced {
		probe(".", "io.cost.qos", &f.IOCost)
	}
	if dir, found := h.ioCgroup(f.Namespaced); found {
		probe(dir, blkio.IOMax, &f.IOMax)
		probe(dir, blkio.IOWeight, &f.IOWeight)
	}
	if err != nil {
		return f, fmt.Errorf("probe cgroups: %w", err)
	}
	return f, nil
}

// Missing returns those of io.max and io.weight that the kernel does not have. It is nil if that is unknown.
func (f *Features) Missing() (files []string) {
	if f.IOMax == blkio.No {
		files = append(files, blkio.IOMax)
	}
	if f.IOWeight == blkio.No {
		files = append(files, blkio.IOWeight)
	}
	return files
}

// ioCgroup finds a cgroup with the io controller: the files of a controller
// are in no other, and not in the host's root.
func (h *Hierarchy) ioCgroup(namespaced bool) (string, bool) {
	if namespaced && h.hasIO(".") {
		return ".", true
	}
	names, err := h.visit(".", func(Cgroup, int, *unix.Stat_t) error { return nil })
	if err != nil {
		return "", false
	}
	for _, name := range names {
		if h.hasIO(name) {
			return name, true
		}
	}
	return "", false
}

func (h *Hierarchy) hasIO(dir string) bool {
	controllers, err := h.readFile(dir + "/cgroup.controllers")
	return err == nil && hasField(controllers, "io")
}

// ReadIOCostQOS reads io.cost.qos, see [blkio.ParseIOCostQOS]. The error is ErrNotSupported
// if the kernel does not have it.
func (h *Hierarchy) ReadIOCostQOS() (map[blkio.Dev]blkio.CostQOSLine, error) {
	return readCgroup(h.Cgroup("."), blkio.IOCostQOS, blkio.ParseIOCostQOS)
}

// ReadIOCostModel reads io.cost.model, see [blkio.ParseIOCostModel]. The error is
// ErrNotSupported if the kernel does not have it.
func (h *Hierarchy) ReadIOCostModel() (map[blkio.Dev]blkio.CostModelLine, error) {
	return readCgroup(h.Cgroup("."), blkio.IOCostModel, blkio.ParseIOCostModel)
}
