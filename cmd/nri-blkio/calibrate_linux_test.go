package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/calibrate"
	"github.com/nri-blkio/nri-blkio/blkio/diskmodel"
	"github.com/nri-blkio/nri-blkio/blkio/storage"
)

// calibrated is a disk and its calibration.
func calibrated(t *testing.T) (*storage.DiskInfo, *calibrate.Calibration) {
	t.Helper()
	d := &storage.DiskInfo{
		Disk: blkio.Disk{Dev: blkio.Dev{Major: 254, Minor: 16}, Name: "vdb"}, Drive: storage.Drive{Model: "Disk \x1b[31m", Serial: "S1"}, Size: 20 << 30,
	}
	latency := calibrate.Latency{P50: time.Millisecond, P95: 2 * time.Millisecond, P99: 3 * time.Millisecond}
	reads := calibrate.Direction{Depths: []calibrate.Depth{{Depth: 1, IOPS: 1500, Latency: latency}}, Relaxed: latency, Last: 1, Lowest: 0.99}
	for _, size := range []int{4 << 10, 32 << 10, 1 << 20} {
		p := diskmodel.Point{Size: size, IOPS: min(1500, 60<<20/float64(size))}
		reads.Sequential, reads.Random = append(reads.Sequential, p), append(reads.Random, p)
	}
	c, err := calibrate.New(calibrate.IdentityOf(d), time.Date(2026, 11, 23, 10, 0, 0, 0, time.UTC), &calibrate.Measurement{Reads: reads, Mixed: 1})
	if err != nil {
		t.Fatal(err)
	}
	return d, c
}

// finish prints a calibration, and saves it if that was requested.
func finish(t *testing.T, dir string, o calibrateOptions, c *calibrate.Calibration) (stdout, stderr string, err error) {
	t.Helper()
	var out, errs bytes.Buffer
	a := &app{stdout: &out, stderr: &errs, opts: options{hostRoot: dir, calibrationDir: "/cal"}}
	d, _ := calibrated(t)
	err = a.finishCalibration(&o, d, c)
	return out.String(), errs.String(), err
}

func TestCalibrationDocument(t *testing.T) {
	_, c := calibrated(t)
	asJSON, _, err := finish(t, "/", calibrateOptions{output: outputJSON}, c)
	if err != nil {
		t.Fatal(err)
	}
	var fromJSON map[string]any
	if err := json.Unmarshal([]byte(asJSON), &fromJSON); err != nil {
		t.Fatal(err)
	}
	of, _ := fromJSON["calibration"].(map[string]any)
	if of["model"] != c.Model.String() || fromJSON["policy"] == nil || fromJSON["name"] != "vdb" {
		t.Errorf("%s", asJSON)
	}
}

func TestSavesCalibration(t *testing.T) {
	dir := t.TempDir()
	d, c := calibrated(t)
	out, notes, err := finish(t, dir, calibrateOptions{save: true, output: outputTable}, c)
	if err != nil || !strings.Contains(notes, "saved: S1.json\n") || !strings.Contains(out, "\ndisks:\n- match:") {
		t.Errorf("%s%s%v", out, notes, err)
	}
	if got, err := calibrate.Load(filepath.Join(dir, "cal"), d); err != nil || got.Model != c.Model {
		t.Errorf("%+v, %v", got, err)
	}

	// An implausible result is printed, and saved with --force only.
	c.Warnings = []calibrate.Warning{{Text: "reads: too fast", Implausible: true}}
	dir = t.TempDir()
	out, notes, err = finish(t, dir, calibrateOptions{save: true, output: outputTable}, c)
	if statusOf(err) != exitFindings || notes != "warning: reads: too fast\nwarning: implausible figures are not saved (add --force to save them)\n" || out == "" {
		t.Errorf("%s%s%v", out, notes, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "cal")); err == nil {
		t.Error("saved")
	}
	_, notes, err = finish(t, dir, calibrateOptions{save: true, force: true, output: outputTable}, c)
	if statusOf(err) != exitFindings || !strings.Contains(notes, "saved: S1.json\n") {
		t.Errorf("%s%v", notes, err)
	}
}
