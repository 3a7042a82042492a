package report

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/calibrate"
	"github.com/nri-blkio/nri-blkio/blkio/diskmodel"
	"github.com/nri-blkio/nri-blkio/blkio/storage"
	"github.com/nri-blkio/nri-blkio/plugin/health"
	"github.com/nri-blkio/nri-blkio/policy"
)

// calibrated is a disk and its calibration.
func calibrated(t *testing.T) (*storage.DiskInfo, *calibrate.Calibration) {
	t.Helper()
	d := &storage.DiskInfo{
		Disk: blkio.Disk{Dev: blkio.Dev{Major: 254, Minor: 16}, Name: "vdb"}, Drive: storage.Drive{Model: "Disk \x1b[31m", Serial: "S1"}, Size: 20 << 30,
	}
	reads := calibrate.Direction{
		Depths: []calibrate.Depth{
			{Depth: 1, IOPS: 1492.6, Latency: calibrate.Latency{P50: 670 * time.Microsecond, P95: 1234567, P99: 2 * time.Millisecond}},
			{Depth: 4, IOPS: 1501.2, Latency: calibrate.Latency{P50: 2700 * time.Microsecond, P95: 3 * time.Millisecond, P99: 4 * time.Millisecond}},
		},
		Relaxed: calibrate.Latency{P50: 300 * time.Microsecond, P95: 400 * time.Microsecond, P99: 500 * time.Microsecond}, Last: 1, Lowest: 0.99,
	}
	for _, size := range []int{4 << 10, 32 << 10, 1 << 20} {
		p := diskmodel.Point{Size: size, IOPS: min(1501.2, 62914560/float64(size))}
		reads.Sequential, reads.Random = append(reads.Sequential, p), append(reads.Random, p)
	}
	writes := reads
	c, err := calibrate.New(calibrate.IdentityOf(d), time.Date(2026, 11, 23, 10, 0, 0, 0, time.UTC), &calibrate.Measurement{Reads: reads, Writes: &writes, Mixed: 1})
	if err != nil {
		t.Fatal(err)
	}
	return d, c
}

const fragment = `disks:
- match: {models: ["Disk \x1b\\[31m"]}
  model: {rbps: 63319491, rseqiops: 1456, rrandiops: 1456, wbps: 63319491, wseqiops: 1456, wrandiops: 1456}
  qos: {rpct: 50, rlat: 4.264ms, wpct: 50, wlat: 4.264ms, min: 99, max: 100}
`

func TestCalibrationText(t *testing.T) {
	d, c := calibrated(t)
	r, err := NewCalibration(d, c)
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	r.Write(&text)
	out := text.String()
	want := `# disk vdb, model "Disk \x1b[31m", serial number S1, 20G, calibrated 2026-11-23T10:00:00Z
#
# OPERATIONS/S  SEQUENTIAL READS  RANDOM READS  SEQUENTIAL WRITES  RANDOM WRITES
# 4K            1500              1500          1500               1500
# 32K           1500              1500          1500               1500
# 1M            60                60            60                 60
#
# The linear model differs from the measured rates by up to 40 %, on average by 13 %.
# The disk has a limit of 1500 operations/s and one of 60M/s. With --save, the model follows the mix of I/O.
` + fragment
	if diff := cmp.Diff(want, out); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	p, err := policy.ParseFile([]byte("apiVersion: blkio.noderesource.dev/v1alpha1\nkind: NodePolicy\n" + out))
	if err != nil || *p.Disks[0].Model != c.Model || *p.Disks[0].QOS != c.QOS {
		t.Errorf("%+v, %v", p, err)
	}
}

// TestCalibrationWithoutWrites verifies that the text has columns and rows of the measured directions only.
func TestCalibrationWithoutWrites(t *testing.T) {
	d, c := calibrated(t)
	c.Writes = nil
	r, err := NewCalibration(d, c)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	r.Write(&out)
	if got := out.String(); !strings.Contains(got, "# OPERATIONS/S  SEQUENTIAL READS  RANDOM READS\n") || strings.Contains(got, "WRITES") {
		t.Error(got)
	}
}

// TestCalibrationDocument verifies that the document has the same fragment of a policy as the text.
func TestCalibrationDocument(t *testing.T) {
	d, c := calibrated(t)
	r, err := NewCalibration(d, c)
	if err != nil {
		t.Fatal(err)
	}
	var fragment struct {
		Disks []struct{ Model, QOS map[string]any }
	}
	if err := json.Unmarshal(r.Policy, &fragment); err != nil || len(fragment.Disks) != 1 {
		t.Fatalf("%v\n%s", err, r.Policy)
	}
	if got := fragment.Disks[0]; got.Model["rseqiops"] != 1456.0 || got.QOS["rlat"] != "4.264ms" {
		t.Errorf("%+v", got)
	}
	if r.Name != "vdb" || r.Calibration != c {
		t.Errorf("%+v", r)
	}
}

func TestRateText(t *testing.T) {
	for rate, want := range map[float64]string{0.4: "0", 7.4: "7", 59.6: "60", 1501.2: "1500", 1496: "1500", 71_234: "71200", 1234567: "1230000"} {
		if got := rateText(rate); got != want {
			t.Errorf("%g: %s", rate, got)
		}
	}
}

// TestCalibrationOfUnnamedDisk verifies that a disk without a model and a serial number, such as a virtual one, has dashes
// for them.
func TestCalibrationOfUnnamedDisk(t *testing.T) {
	d, c := calibrated(t)
	d.Drive = storage.Drive{}
	c.Disk = calibrate.IdentityOf(d)
	r, err := NewCalibration(d, c)
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	r.Write(&text)
	first, _, _ := strings.Cut(text.String(), "\n")
	if want := "# disk vdb, model -, serial number -, 20G, calibrated 2026-11-23T10:00:00Z"; first != want {
		t.Errorf("the first line is\n%s, want\n%s", first, want)
	}
}

// TestSkippedWeights verifies that weights that the plugin leaves out are named below the table.
func TestSkippedWeights(t *testing.T) {
	var out bytes.Buffer
	writeWeights(&out, &health.Weights{SharesLeftOut: 4, Skipped: []string{"cgroup x: y\x1b"}}, false)
	want := "note: 4 weights on this node are left out, because the report is bounded\nwarning: cgroup x: y\\x1b\n"
	if d := cmp.Diff(want, out.String()); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}
