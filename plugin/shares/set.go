package shares

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
)

// setBelow sets the weights of all cgroups below c to want, by path. In io.weight a container has the
// weight that it was given. If all is false, the disks that are not in want keep their weights. A cgroup that has not been read
// keeps its weights.
func (c *cgroup) setBelow(want map[string]map[blkio.Dev]uint32, all bool) (errs []error) {
	for _, child := range c.children {
		if child.isLeaf && !c.control.ofContainers || child.isUnread() {
			continue
		}
		set := child.set
		if !all {
			set = child.change
		}
		errs = append(errs, set(want[child.Path()])...)
		errs = append(errs, child.setBelow(want, all)...)
	}
	return errs
}

// set sets the weights of a cgroup on some disks to want. On other disks it removes those that a Keeper has
// written.
func (c *cgroup) set(want map[blkio.Dev]uint32) []error {
	errs := c.change(want)
	ours, err := c.readOurs()
	if err != nil {
		return append(errs, err)
	}
	unwanted := slices.DeleteFunc(slices.Clone(ours), func(dev blkio.Dev) bool { return want[dev] != 0 })
	if err := c.unset(unwanted, ours); err != nil {
		errs = append(errs, err)
	}
	return errs
}

// change writes the differences between the weights of a cgroup and those that are wanted on some
// disks. A disk that the kernel refuses keeps no other one from its weight.
func (c *cgroup) change(want map[blkio.Dev]uint32) (errs []error) {
	changed := slices.DeleteFunc(slices.SortedFunc(maps.Keys(want), blkio.Dev.Compare), func(dev blkio.Dev) bool {
		return c.weights.On(dev) == want[dev]
	})
	if len(changed) == 0 {
		return nil
	}
	c.ours = nil // another process may have cleared
	ours, err := c.readOurs()
	if err != nil {
		return []error{err}
	}
	for _, dev := range changed {
		if !slices.Contains(ours, dev) {
			ours = append(slices.Clone(ours), dev)
		}
	}
	if err := c.writeOurs(ours); err != nil { // first, so that Clear finds each weight
		return []error{err}
	}
	for _, dev := range changed {
		if err := c.setOn(dev, want[dev]); err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}

// unset removes the weights of disks, which are among those that a Keeper has set. A weight is not removed if
// the disk does not exist any more, or if another disk has its number and never had io.cost.
func (c *cgroup) unset(disks, ours []blkio.Dev) error {
	for _, dev := range disks {
		if err := c.setOn(dev, 0); err != nil && !errors.Is(err, blkio.ErrNoDevice) && !errors.Is(err, blkio.ErrNotSupported) {
			return err
		}
	}
	return c.writeOurs(slices.DeleteFunc(slices.Clone(ours), func(dev blkio.Dev) bool { return slices.Contains(disks, dev) }))
}

// setOn writes the weight of a disk; 0 removes it.
func (c *cgroup) setOn(dev blkio.Dev, weight uint32) error {
	value := "default"
	if weight != 0 {
		value = fmt.Sprint(weight)
	}
	err := c.control.write(c.Cgroup, blkio.Line{File: c.control.file, Text: dev.String() + " " + value, Dev: dev})
	if err != nil {
		return &DiskError{Dev: dev, Err: err}
	}
	c.weights = c.weights.With(dev, weight)
	return nil
}

func (c *cgroup) readOurs() ([]blkio.Dev, error) {
	if c.control.attribute == "" {
		return slices.DeleteFunc(slices.Collect(maps.Keys(c.weights.Devices)), func(dev blkio.Dev) bool { return !slices.Contains(c.control.disks, dev) }), nil
	}
	if c.ours != nil {
		return *c.ours, nil
	}
	data, err := c.ReadXattr(c.control.attribute)
	if err != nil {
		return nil, err
	}
	ours := []blkio.Dev{}
	for name := range strings.FieldsSeq(string(data)) {
		if dev, err := blkio.ParseDev(name); err == nil { // only root can write the attribute
			ours = append(ours, dev)
		}
	}
	c.ours = &ours
	return ours, nil
}

// writeOurs changes the attribute to these disks, and removes it for none.
func (c *cgroup) writeOurs(ours []blkio.Dev) error {
	if c.control.attribute == "" || slices.Equal(ours, *c.ours) {
		return nil
	}
	names := make([]string, len(ours))
	for i, dev := range ours {
		names[i] = dev.String()
	}
	var err error
	if len(ours) == 0 {
		err = c.RemoveXattr(c.control.attribute)
	} else {
		err = c.WriteXattr(c.control.attribute, []byte(strings.Join(names, " ")))
	}
	if err == nil {
		c.ours = &ours
	}
	return err
}

// DiskError is an error of weights on one disk.
type DiskError struct {
	Dev blkio.Dev
	Err error // of a write to io.weight of one cgroup
}

// Error returns a text without the cgroup and its weight. A disk that hangs fails in all cgroups of
// the node, with other weights in each pass: one line is enough of that.
func (e *DiskError) Error() string {
	cause := e.Err
	if at, ok := errors.AsType[*cgroupfs.CgroupError](cause); ok {
		cause = at.Err
	}
	return fmt.Sprintf("set weights on %s: %v", e.Dev, cause)
}

// Unwrap returns Err.
func (e *DiskError) Unwrap() error { return e.Err }

// Clear removes the weights that a Keeper has set, where no Keeper runs. It returns a line for
// each of them, also with an error. With dryRun it changes nothing.
func Clear(cgroups *cgroupfs.Hierarchy, dryRun bool) (steps []string, err error) {
	var errs []error
	err = cgroups.Walk(Attribute, func(at cgroupfs.Cgroup, _ cgroupfs.Attribute) error {
		cleared, err := newCgroup(at, ofCost(cgroupfs.Cgroup.Write)).clear(dryRun)
		steps = append(steps, cleared...)
		if !errors.Is(err, blkio.ErrGone) {
			errs = append(errs, err)
		}
		return nil
	})
	return steps, errors.Join(append(errs, err)...)
}

func (c *cgroup) clear(dryRun bool) (steps []string, err error) {
	ours, err := c.readOurs()
	if err != nil {
		return nil, err
	}
	for _, dev := range ours {
		steps = append(steps, fmt.Sprintf("%s: write io.weight %q", c.Path(), dev.String()+" default"))
	}
	if dryRun {
		return steps, nil
	}
	return steps, c.unset(ours, ours)
}
