package weights

import (
	"errors"
	"testing"
	"testing/fstest"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/calibrate"
	"github.com/nri-blkio/nri-blkio/blkio/storage"
	"github.com/nri-blkio/nri-blkio/plugin/iocost"
)

func TestNodeDisksCalibration(t *testing.T) {
	d := storage.DiskInfo{Disk: blkio.Disk{Name: "vdb"}, Drive: storage.Drive{Serial: "S1"}, Size: 1 << 30}
	n := NodeDisks{UdevData: fstest.MapFS{}, CalibrationDir: t.TempDir()}
	if known, err := n.Calibration(&d); known != (iocost.Known{}) || err != nil {
		t.Errorf("nothing saved: %+v, %v", known, err)
	}
	want := calibrate.Calibration{
		Disk: calibrate.IdentityOf(&d), At: time.Unix(1, 0),
		Model: blkio.CostModel{Rbps: 1 << 20, RSeqIOPS: 3, RRandIOPS: 2, Wbps: 1 << 20, WSeqIOPS: 3, WRandIOPS: 1},
		QOS:   blkio.CostQOS{Min: 9800, Max: 10000},
	}
	if _, err := calibrate.Save(n.CalibrationDir, &want); err != nil {
		t.Fatal(err)
	}
	known, err := n.Calibration(&d)
	if err != nil || known.Model == nil || *known.Model != want.Model || *known.QOS != want.QOS {
		t.Errorf("%+v, %v", known, err)
	}
	// A disk with the same name, and one with the same serial number that is larger.
	other := d
	other.Serial = "S2"
	if known, err := n.Calibration(&other); known != (iocost.Known{}) || err != nil {
		t.Errorf("of another disk: %+v, %v", known, err)
	}
	d.Size *= 2
	if known, err := n.Calibration(&d); known != (iocost.Known{}) || !errors.Is(err, calibrate.ErrOtherDisk) {
		t.Errorf("of a disk that was resized: %+v, %v", known, err)
	}
}
