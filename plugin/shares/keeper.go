package shares

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
)

// Attribute is the extended attribute of a cgroup that has weights of a Keeper. Its value has
// the device numbers, separated by blanks.
const Attribute = "user.nri-blkio.shares"

// allEvery is how often a Keeper reads all cgroups again, to see weights that another program
// has changed. Systemd does so with each daemon-reload.
const allEvery = 30 * time.Second

// Keeper keeps the weights of the cgroups above containers, on some disks. It is not safe for
// concurrent use.
type Keeper struct {
	cgroups *cgroupfs.Hierarchy
	write   Write
	top     []*cgroup // those above all pods; in general one
	read    time.Time // when all was read
	rivals  rivals
}

// Demand is what the weights of cgroups follow from.
type Demand struct {
	Disks []blkio.Dev // those with io.cost enabled
	// Given are the weights of containers, and of pods that have one as a whole, by path. Other
	// containers have what io.weight has.
	Given map[string]blkio.Weights
	// Reserve is the share of each disk for everything outside pods; 0 leaves the weights at the
	// root of the tree as they are.
	Reserve blkio.Percent
}

// Write writes a line to a control file of a cgroup, as [cgroupfs.Cgroup.Write] does. A disk that
// hangs can keep a write for ever, so the caller may bound it.
type Write func(c cgroupfs.Cgroup, line blkio.Line) error

// NewKeeper returns a Keeper for the pods of a node.
func NewKeeper(cgroups *cgroupfs.Hierarchy, write Write) *Keeper {
	return &Keeper{cgroups: cgroups, write: write}
}

// Pass makes the weights of all pods and QoS classes right for what was active since the last
// pass. It returns the shares on each disk. With an error, weights that could be set are set; [Failed]
// returns the disks on which some could not.
func (k *Keeper) Pass(now time.Time, d Demand) (map[blkio.Dev][]Share, error) {
	if err := k.look(now); err != nil {
		return nil, fmt.Errorf("read the cgroups of pods: %w", err)
	}
	out := map[blkio.Dev][]Share{}
	want := map[string]map[blkio.Dev]uint32{}
	for _, dev := range d.Disks {
		for _, top := range k.top {
			out[dev] = append(out[dev], Distribute(top.onDisk(dev, now, d.Given))...)
		}
		for _, s := range out[dev] {
			if want[s.Path] == nil {
				want[s.Path] = map[blkio.Dev]uint32{}
			}
			want[s.Path][dev] = s.Weight
		}
	}
	errs := []error{k.reserve(now, d.Disks, d.Reserve)}
	for _, top := range k.top {
		errs = append(errs, top.setBelow(want)...)
	}
	return out, joinDistinct(errs)
}

// look reads what changed, or all of it at times.
func (k *Keeper) look(now time.Time) error {
	all := now.Sub(k.read) >= allEvery || len(k.top) == 0 // the first pod of a node makes it
	if all {
		if err := k.findTop(); err != nil {
			return err
		}
	}
	var found []*cgroup
	for _, top := range k.top {
		switch err := top.look(now, all); {
		case err == nil:
			found = append(found, top)
		case !errors.Is(err, blkio.ErrGone) && !errors.Is(err, blkio.ErrNotSupported): // no io.weight
			return err
		}
	}
	k.top = found
	if all {
		k.read = now
	}
	return nil
}

// findTop finds the cgroups above all pods.
func (k *Keeper) findTop() error {
	var found []*cgroup
	var find func(c cgroupfs.Cgroup, depth int) error
	find = func(c cgroupfs.Cgroup, depth int) error {
		children, err := c.Children()
		if err != nil {
			return err
		}
		for _, child := range children {
			name := child.Path()[strings.LastIndexByte(child.Path(), '/')+1:]
			switch {
			case cgroupfs.IsKubepods(name):
				found = append(found, k.known(child))
			case depth < maxTopDepth:
				if err := find(child, depth+1); err != nil && !errors.Is(err, blkio.ErrGone) {
					return err
				}
			}
		}
		return nil
	}
	if err := find(k.cgroups.Cgroup("."), 1); err != nil {
		return err
	}
	k.top = found
	return nil
}

// maxTopDepth is how far below the root the kubelet's cgroup of all pods is looked for: with
// --cgroup-root it is below another one.
const maxTopDepth = 3

func (k *Keeper) known(c cgroupfs.Cgroup) *cgroup {
	for _, top := range k.top {
		if top.Path() == c.Path() {
			return top
		}
	}
	return newCgroup(c, k.write)
}
