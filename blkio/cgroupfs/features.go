package cgroupfs

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// Features lists what the kernel supports, by the cgroup files that exist. Unknown
// means that no cgroup has the io controller.
type Features struct {
	IOMax     blkio.Tri `json:"ioMax"`     // blk-throttle
	IOWeight  blkio.Tri `json:"ioWeight"`  // built in; whether it works differs by disk, see ReadIOCostQOS
	BFQWeight blkio.Tri `json:"bfqWeight"` // the bfq module is loaded, with any scheduler in use
	IOLatency blkio.Tri `json:"ioLatency"`
	IOPrio    blkio.Tri `json:"ioPrio"`
	IOCost    blkio.Tri `json:"ioCost"` // io.cost.qos, only in the host's root cgroup
	// Namespaced reports that the tree's root is not the host's: the
	// directory was mounted in a cgroup namespace.
	Namespaced bool `json:"namespaced"`
}

// Probe looks for the files of each feature.
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
		probe(dir, "io.max", &f.IOMax)
		probe(dir, "io.weight", &f.IOWeight)
		probe(dir, "io.bfq.weight", &f.BFQWeight)
		probe(dir, "io.latency", &f.IOLatency)
		probe(dir, "io.prio.class", &f.IOPrio)
	}
	if err != nil {
		return f, fmt.Errorf("probe cgroups: %w", err)
	}
	return f, nil
}

// HasIOWeight reports whether the kernel has io.weight. The error is that no cgroup has
// the io controller, so that there is nowhere to look.
func (h *Hierarchy) HasIOWeight() (bool, error) {
	f, err := h.Probe()
	if err == nil && f.IOWeight == blkio.Unknown {
		err = errors.New("look for io.weight: no cgroup below the root has the io controller yet")
	}
	return f.IOWeight == blkio.Yes, err
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

// ReadIOCostQOS returns the devices on which io.cost is enabled. A device that is not
// listed has it off. ErrNotSupported without io.cost.qos.
func (h *Hierarchy) ReadIOCostQOS() (map[blkio.Dev]bool, error) {
	root := Cgroup{h: h, path: "."}
	return readCgroup(root, "io.cost.qos", blkio.ParseIOCostQOS)
}
