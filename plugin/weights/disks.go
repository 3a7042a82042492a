package weights

import (
	"io/fs"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/calibrate"
	"github.com/nri-blkio/nri-blkio/blkio/storage"
	"github.com/nri-blkio/nri-blkio/plugin/iocost"
)

// NodeDisks has the Disks of this node.
type NodeDisks struct {
	Sysfs storage.Sysfs
	// SysfsDir is the directory of Sysfs, for writes.
	SysfsDir string
	// UdevData is the directory /run/udev/data.
	UdevData fs.FS
	// CalibrationDir is the directory with the results of calibrate.
	CalibrationDir string
}

// Disks returns all disks, sorted by number.
func (n NodeDisks) Disks() ([]storage.DiskInfo, error) { return n.Sysfs.Disks() }

// SetQueue writes a file of a disk's queue.
func (n NodeDisks) SetQueue(dev blkio.Dev, file, value string) error {
	return storage.SetQueue(n.SysfsDir, dev, file, value)
}

// Udev returns the values of a disk in udev's database.
func (n NodeDisks) Udev(d *storage.DiskInfo) (iocost.Known, error) {
	s, err := storage.ReadCostSolution(n.UdevData, d.Dev)
	if err != nil || s == nil {
		return iocost.Known{}, err
	}
	return iocost.Known{Model: &s.Model, QOS: &s.QOS}, nil
}

// Calibration returns the measured values of a disk.
func (n NodeDisks) Calibration(d *storage.DiskInfo) (iocost.Known, error) {
	c, err := calibrate.Load(n.CalibrationDir, d)
	if err != nil || c == nil {
		return iocost.Known{}, err
	}
	return iocost.Known{Model: &c.Model, QOS: &c.QOS, Limits: c.Limits()}, nil
}
