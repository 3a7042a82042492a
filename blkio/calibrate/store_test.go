package calibrate

import (
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// TestRoundTrip verifies that any saved calibration is read back unchanged.
func TestRoundTrip(t *testing.T) {
	for name, change := range map[string]func(c *Calibration){
		"as measured":            func(*Calibration) {},
		"reads only":             func(c *Calibration) { c.Writes, c.Mixed = nil, 0 },
		"with doubts":            func(c *Calibration) { c.Warnings = append(c.Warnings, Warning{"a\n\"b\" <ü>", true}, Warning{}) },
		"the processors' limits": func(c *Calibration) { c.Reads.CPUBound, c.Writes.Zeros = true, 1 },
		"the largest values": func(c *Calibration) {
			c.Model = blkio.CostModel{Rbps: 1<<63 - 1, RSeqIOPS: 1<<63 - 1, RRandIOPS: 1<<63 - 1, Wbps: 1<<63 - 1, WSeqIOPS: 1<<63 - 1, WRandIOPS: 1<<63 - 1}
			c.QOS = blkio.CostQOS{RPct: 10000, WPct: 10000, RLat: (1<<32 - 1) * us, WLat: (1<<32 - 1) * us, Min: 1000000, Max: 1000000}
		},
		"the smallest values": func(c *Calibration) {
			c.Model = blkio.CostModel{Rbps: 4096, RSeqIOPS: 1, RRandIOPS: 1, Wbps: 4096, WSeqIOPS: 1, WRandIOPS: 1}
			c.QOS = blkio.CostQOS{Min: 100, Max: 100}
			c.At, c.Disk.Size, c.Reads.Relaxed = time.Unix(0, 0).UTC(), 0, Latency{}
		},
	} {
		want := calibration(t, IdentityOf(&disk))
		writes := *want.Writes
		want.Writes = &writes
		change(want)
		data, err := json.MarshalIndent(want, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		got, err := parse(iotest.OneByteReader(strings.NewReader(string(data))))
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%s: %v, -want +got:\n%s", name, err, diff)
		}
	}
}

// TestLoadErrors verifies that a file that is there and cannot be used is an error that names it.
func TestLoadErrors(t *testing.T) {
	file := func(dir string) string {
		name, err := fileOf(dir, IdentityOf(&disk))
		if err != nil {
			t.Fatal(err)
		}
		return name
	}
	for name, tt := range map[string]struct {
		make func(file string) error
		want string
	}{
		"empty":           {func(file string) error { return os.WriteFile(file, nil, 0o600) }, "load calibration: parse FILE: EOF"},
		"no object":       {func(file string) error { return os.WriteFile(file, []byte("null"), 0o600) }, "load calibration: parse FILE: version 0, not 1"},
		"cut off":         {func(file string) error { return os.WriteFile(file, []byte(`{"version":1,`), 0o600) }, "load calibration: parse FILE: unexpected EOF"},
		"a directory":     {func(file string) error { return os.Mkdir(file, 0o700) }, "load calibration: parse FILE: read FILE: is a directory"},
		"a circle":        {func(file string) error { return os.Symlink(file, file) }, "load calibration: open FILE: too many levels of symbolic links"},
		"a dangling link": {func(file string) error { return os.Symlink("nowhere", file) }, ""}, // as if it was not there
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := tt.make(file(dir)); err != nil {
				t.Fatal(err)
			}
			c, err := Load(dir, &disk)
			text := ""
			if err != nil {
				text = strings.ReplaceAll(err.Error(), file(dir), "FILE")
			}
			if c != nil || text != tt.want {
				t.Errorf("%+v, %s, want %s", c, text, tt.want)
			}
		})
	}
	broken := errors.New("input/output error")
	if c, err := parse(iotest.ErrReader(broken)); c != nil || !errors.Is(err, broken) {
		t.Errorf("%+v, %v", c, err)
	}
	c := calibration(t, IdentityOf(&disk))
	c.Reads.Last = math.Inf(1) // which JSON does not have
	if file, err := Save(t.TempDir(), c); err == nil {
		t.Errorf("saved as %s", file)
	}
}

// TestFileNames verifies that each identity, with any bytes, has a file of its own in the directory.
func TestFileNames(t *testing.T) {
	seen := map[string]string{}
	for _, text := range []string{
		"S1", "s1", "S 1", "S_1", "S-1", "S%201", "S%1", ".", "..", "../x", "/etc/passwd", "a/b", "a\x00b", "a.json", "ü", "\xff", "~", "naa.5000c500a1b2c3d4",
		strings.Repeat("x", maxFileName), strings.Repeat("x", maxFileName+1), strings.Repeat("x", maxFileName) + "/", strings.Repeat("/", 70), strings.Repeat("/", 300), strings.Repeat("/", 301),
	} {
		file, err := fileOf("/dir", Identity{Serial: text})
		if err != nil {
			t.Fatal(err)
		}
		if name := filepath.Base(file); filepath.Dir(file) != "/dir" || len(name) > 255-len(".new") || strings.HasPrefix(name, ".") {
			t.Errorf("%.20q: %s", text, file)
		}
		if other, isKnown := seen[file]; isKnown {
			t.Errorf("%.20q and %.20q are both in %s", text, other, file)
		}
		seen[file] = text
	}
	for serial, want := range map[string]string{"QEMU-1_a": "QEMU-1_a.json", "vol 0": "vol%200.json"} {
		if got, err := fileOf("d", Identity{Serial: serial}); err != nil || got != "d/"+want {
			t.Errorf("%s: %s, %v", serial, got, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"version":1,"model":"rbps=1","qos":""}`))
	reads := direction(1500, 60*mib, Latency{P50: 300 * us})
	c, err := New(IdentityOf(&disk), at, &Measurement{Reads: *reads})
	if err != nil {
		f.Fatal(err)
	}
	data, err := json.Marshal(c)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := parse(strings.NewReader(string(data)))
		if err != nil {
			return
		}
		if err := errors.Join(c.Model.Check(), c.QOS.Check()); err != nil {
			t.Fatal(err)
		}
		text, err := c.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		again, err := parse(strings.NewReader(string(text)))
		if diff := cmp.Diff(c, again); err != nil || diff != "" {
			t.Errorf("%s: %v\n%s", text, err, diff)
		}
	})
}
