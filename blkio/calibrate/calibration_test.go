package calibrate

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/diskmodel"
	"github.com/nri-blkio/nri-blkio/blkio/storage"
)

var at = time.Date(2026, 11, 23, 9, 30, 0, 0, time.UTC)

// direction returns the measurements of a disk with these bounds.
func direction(iops, bps float64, latency Latency) *Direction {
	var points []diskmodel.Point
	for _, size := range sizes {
		points = append(points, diskmodel.Point{Size: size, IOPS: min(iops, bps/float64(size))})
	}
	return &Direction{
		Measured: diskmodel.Measured{Sequential: points, Random: points},
		Depths:   []Depth{{1, iops, Latency{P50: 100 * time.Microsecond}}}, Relaxed: latency, Last: 1, Lowest: 0.99,
	}
}

const us = time.Microsecond

func TestProposesTargets(t *testing.T) {
	for name, tt := range map[string]struct {
		m    Measurement
		want string
	}{
		// 7.5 operations a period: one of them would decide a higher percentile.
		"a throttled disk": {
			Measurement{*direction(1500, 60*mib, Latency{P50: 300 * us, P95: 500 * us}), direction(1500, 60*mib, Latency{P50: 400 * us, P95: 600 * us}), 1},
			"rpct=50.00 rlat=4267 wpct=50.00 wlat=4267 min=99.00 max=100.00",
		},
		"an SSD": {
			Measurement{*direction(70_000, 460e6, Latency{P50: 200 * us, P95: 300 * us}), direction(50_000, 460e6, Latency{P50: 300 * us, P95: 600 * us}), 0.9},
			"rpct=50.00 rlat=1000 wpct=50.00 wlat=1000 min=90.00 max=100.00",
		},
		"a hard disk, reads only": {
			Measurement{*direction(100, 150e6, Latency{P50: 12 * time.Millisecond, P75: 14 * time.Millisecond, P95: 20 * time.Millisecond}), nil, 0},
			"rpct=50.00 rlat=50000 wpct=0.00 wlat=0 min=99.00 max=100.00",
		},
		"reads and writes apart, unsteady": {
			Measurement{*direction(1500, 60*mib, Latency{P50: 1500 * us, P75: 1500 * us}), &Direction{
				Measured: direction(1500, 60*mib, Latency{}).Measured, Relaxed: Latency{P50: 1600 * us, P75: 1600 * us}, Lowest: 0.3,
			}, 1.9},
			"rpct=50.00 rlat=4267 wpct=50.00 wlat=4267 min=60.00 max=100.00",
		},
	} {
		t.Run(name, func(t *testing.T) {
			writes := tt.m.Writes
			if writes == nil {
				writes = &tt.m.Reads
			}
			fit, err := diskmodel.FitLinear(tt.m.Reads.Measured, writes.Measured)
			if err != nil {
				t.Fatal(err)
			}
			q := tt.m.qos(fit.Model)
			if q.String() != tt.want {
				t.Errorf("got  %s\nwant %s", q, tt.want)
			}
			if err := q.Check(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestWarnings(t *testing.T) {
	good := func() *Direction { return direction(1500, 60*mib, Latency{}) }
	for name, tt := range map[string]struct {
		change      func(d *Direction)
		want        string // "" for none
		implausible bool
	}{
		"steady":          {func(*Direction) {}, "", false},
		"burst credits":   {func(d *Direction) { d.Last = 0.3 }, "fell to 30 % during the calibration, as with burst credits or a cache", true},
		"unsteady":        {func(d *Direction) { d.Lowest = 0.5 }, "the rate fell to 50 % at times", false},
		"a cache":         {func(d *Direction) { d.Depths[0].Latency.P50 = 3 * us }, "a cache in memory answers", true},
		"too fast":        {func(d *Direction) { d.Sequential = []diskmodel.Point{{Size: mib, IOPS: 50_000}} }, "52 GB/s is more than a disk transfers", true},
		"never written":   {func(d *Direction) { d.Zeros = 1 }, "100 % of the blocks have zeros only", false},
		"busy processors": {func(d *Direction) { d.CPUBound = true }, "the processors were the bottleneck", true},
	} {
		t.Run(name, func(t *testing.T) {
			d := good()
			tt.change(d)
			m := Measurement{Reads: *good(), Writes: d, Mixed: 1}
			got := m.warnings()
			switch {
			case tt.want == "" && len(got) == 0:
			case len(got) != 1 || tt.want == "" || !strings.HasPrefix(got[0].Text, "writes: ") || !strings.Contains(got[0].Text, tt.want) || got[0].Implausible != tt.implausible:
				t.Errorf("got %+v, want %q", got, tt.want)
			}
		})
	}
	m := Measurement{Reads: *good()}
	if got := m.warnings(); len(got) != 1 || got[0].Implausible || !strings.Contains(got[0].Text, "writes were not measured") {
		t.Errorf("without writes: %+v", got)
	}
}

func calibration(t *testing.T, id Identity) *Calibration {
	t.Helper()
	reads := direction(1500, 60*mib, Latency{P50: 300 * us})
	c, err := New(id, at.Add(time.Millisecond), &Measurement{Reads: *reads, Writes: reads, Mixed: 1})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

var disk = storage.DiskInfo{
	Disk: blkio.Disk{Name: "vdb"}, Drive: storage.Drive{Model: "A/B", Serial: "../S 1", WWID: "eui.1"}, Size: 20 * gib,
}

func TestNew(t *testing.T) {
	c := calibration(t, IdentityOf(&disk))
	if c.Model.RRandIOPS != 1455 || c.QOS.Min != 9900 || !c.At.Equal(at) || c.Fit.Max < 0.3 || !c.IsPlausible() {
		t.Errorf("%+v", c)
	}
	if len(c.Warnings) != 1 || !strings.Contains(c.Warnings[0].Text, "charges up to 66 % more") {
		t.Errorf("%+v", c.Warnings)
	}
	if c, err := New(Identity{}, at, &Measurement{}); err == nil || !strings.Contains(err.Error(), "derive io.cost's model: fit reads: ") {
		t.Errorf("%+v, %v", c, err)
	}
	c.Warnings[0].Implausible = true
	if c.IsPlausible() {
		t.Error("an implausible one is plausible")
	}
}

// TestLimits verifies that the limits are those of reads and writes together.
func TestLimits(t *testing.T) {
	c := calibration(t, IdentityOf(&disk))
	faster := []diskmodel.Point{{Size: 4096, IOPS: 2130}}
	c.Reads.Sequential, c.Writes.Sequential = faster, faster // merged
	if l := c.Limits(); l == nil || l.Ops != 1500 || l.Bytes != 60*mib {
		t.Errorf("%+v", l)
	}
	for name, change := range map[string]func(c *Calibration){
		"no writes":             func(c *Calibration) { c.Writes = nil },
		"writes have their own": func(c *Calibration) { c.Mixed = 2 },
		"faster random reads":   func(c *Calibration) { c.Reads.Random = append(c.Reads.Random, faster...) },
		"slower writes":         func(c *Calibration) { c.Writes = direction(1000, 60*mib, Latency{}) },
		"implausible":           func(c *Calibration) { c.Warnings = []Warning{{Implausible: true}} },
	} {
		c := calibration(t, IdentityOf(&disk))
		change(c)
		if l := c.Limits(); l != nil {
			t.Errorf("%s: %+v", name, l)
		}
	}
}

func TestSaveAndLoad(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "calibration")
	if got, err := Load(dir, &disk); got != nil || err != nil {
		t.Errorf("nothing saved: %+v, %v", got, err)
	}
	for _, by := range []storage.Drive{disk.Drive, {Serial: "S1"}} {
		d := disk
		d.Drive = by
		want := calibration(t, IdentityOf(&d))
		for range 2 { // the second replaces the first
			file, err := Save(dir, want)
			if err != nil || filepath.Dir(file) != dir {
				t.Fatalf("%s, %v", file, err)
			}
		}
		d.Name = "vdz"
		got, err := Load(dir, &d)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%v, -want +got:\n%s", err, diff)
		}
		entries, err := os.ReadDir(dir)
		if err != nil || len(entries) > 2 {
			t.Errorf("%v, %v", entries, err)
		}
	}
}

func TestIdentity(t *testing.T) {
	dir := t.TempDir()
	if _, err := Save(dir, calibration(t, IdentityOf(&disk))); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		change func(d *storage.DiskInfo)
		want   error // nil for no calibration
	}{
		"another WWID, the same name": {func(d *storage.DiskInfo) { d.WWID = "eui.2" }, nil},
		"no WWID":                     {func(d *storage.DiskInfo) { d.WWID = "" }, nil},
		"nothing that identifies it":  {func(d *storage.DiskInfo) { d.Serial, d.WWID = "", "" }, nil},
		"another model":               {func(d *storage.DiskInfo) { d.Model = "C" }, ErrOtherDisk},
		"resized":                     {func(d *storage.DiskInfo) { d.Size *= 2 }, ErrOtherDisk},
		"another serial number":       {func(d *storage.DiskInfo) { d.Serial = "S2" }, ErrOtherDisk},
		"no serial number":            {func(d *storage.DiskInfo) { d.Serial = "" }, ErrOtherDisk},
	} {
		t.Run(name, func(t *testing.T) {
			d := disk
			tt.change(&d)
			if got, err := Load(dir, &d); got != nil || !errors.Is(err, tt.want) {
				t.Errorf("%+v, %v", got, err)
			}
		})
	}
	if _, err := Save(dir, calibration(t, Identity{Model: "A", Size: 1})); !errors.Is(err, ErrNoIdentity) {
		t.Errorf("saved without an identity: %v", err)
	}
}

// TestNamespaces verifies that each namespace of an NVMe controller has a calibration of its own. The
// namespaces, such as the disks of a virtual machine, have the same serial number.
func TestNamespaces(t *testing.T) {
	dir := t.TempDir()
	namespaces := make([]storage.DiskInfo, 2)
	for i := range namespaces {
		d := storage.DiskInfo{Drive: storage.Drive{Model: "NVMe Accelerator", Serial: "SN: 000001", WWID: fmt.Sprintf("nvme.1414-534e-4d53-0000000%d", i+1)}, Size: gib}
		namespaces[i] = d
		c := calibration(t, IdentityOf(&d))
		c.Model.Rbps += uint64(i)
		if _, err := Save(dir, c); err != nil {
			t.Fatal(err)
		}
	}
	for i := range namespaces {
		got, err := Load(dir, &namespaces[i])
		if err != nil || got == nil || got.Disk != IdentityOf(&namespaces[i]) {
			t.Errorf("namespace %d: %+v, %v", i+1, got, err)
		}
	}
}

// TestBytesOfIdentity covers models and serial numbers with bytes that JSON cannot have.
func TestBytesOfIdentity(t *testing.T) {
	dir := t.TempDir()
	disks := []storage.Drive{{Serial: "S\xff"}, {Serial: "S\xfe"}, {Serial: "S\ufffd"}, {Serial: "S<&>\u2028\x00"}, {Serial: "S2", Model: "\xff\xff\xff\xff"}, {WWID: "t10.\xc3("}}
	for _, drive := range disks {
		d := storage.DiskInfo{Drive: drive, Size: gib}
		if got, err := Load(dir, &d); got != nil || err != nil {
			t.Errorf("%q, before: %+v, %v", drive, got, err)
		}
		if _, err := Save(dir, calibration(t, IdentityOf(&d))); err != nil {
			t.Errorf("%q: %v", drive, err)
		}
	}
	for _, drive := range disks {
		d := storage.DiskInfo{Drive: drive, Size: gib}
		if got, err := Load(dir, &d); got == nil || err != nil {
			t.Errorf("%q: %+v, %v", drive, got, err)
		}
	}
}

// TestLongIdentity covers the identity of an iSCSI target that is longer than the name of a file can be.
func TestLongIdentity(t *testing.T) {
	dir, d := t.TempDir(), disk
	d.WWID = strings.Repeat("t10. x", 60)
	if got, err := Load(dir, &d); got != nil || err != nil {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := Save(dir, calibration(t, IdentityOf(&d))); err != nil {
		t.Fatal(err)
	}
	if got, err := Load(dir, &d); got == nil || err != nil {
		t.Errorf("%+v, %v", got, err)
	}
	d.WWID += "y"
	if got, err := Load(dir, &d); got != nil || err != nil {
		t.Errorf("of another disk: %+v, %v", got, err)
	}
}

func TestSaveErrors(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Save(filepath.Join(dir, "file"), calibration(t, IdentityOf(&disk))); err == nil || !strings.Contains(err.Error(), "save calibration: ") {
		t.Error(err)
	}
	// A file that cannot replace the former one is removed.
	file, err := fileOf(dir, IdentityOf(&disk))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(file, "x"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := Save(dir, calibration(t, IdentityOf(&disk))); err == nil {
		t.Error("a directory was replaced")
	}
	if _, err := os.Stat(file + ".new"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("left behind: %v", err)
	}
}

func TestParseErrors(t *testing.T) {
	data, err := calibration(t, IdentityOf(&disk)).MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	good := string(data)
	if _, err := parse(strings.NewReader(good)); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ old, new, want string }{
		{`"version":1`, `"version":2`, "version 2, not 1"},
		{`"version":1,`, ``, "version 0, not 1"},
		{`"version":1`, `"version":1,"more":1`, `unknown field "more"`},
		{`}`, ``, "unexpected EOF"},
		{"\"model\":\"rbps=", "\"model\":\"rbps=x", "invalid rbps"},
		{"rrandiops=1455 ", "rrandiops=0 ", "rrandiops=0 is too small"},
		{"rrandiops=1455 ", "", "rrandiops=0 is too small"},
		{"rrandiops=1455 ", "rrandiops=99999999999999999999 ", "invalid rrandiops"},
		{"rpct=50.00", "rpct=101.00", "rpct=101.00 is above 100"},
		{"rpct=50.00", "rpct=50.00 also=1", "have not all values"},
		{"rpct=50.00 ", "", "have not all values"},
		{"min=99.00", "min=980.00", "min=980.00 is above max"},
	} {
		bad := strings.Replace(good, tt.old, tt.new, 1)
		if c, err := parse(strings.NewReader(bad)); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s -> %s: %+v, %v, want %s", tt.old, tt.new, c, err, tt.want)
		}
	}
	if _, err := parse(strings.NewReader(good + "{}")); err == nil || !strings.Contains(err.Error(), "data after the calibration") {
		t.Error(err)
	}
	if _, err := parse(strings.NewReader(strings.Repeat(" ", maxSaved+1))); err == nil || !strings.Contains(err.Error(), "larger than") {
		t.Error(err)
	}
}
