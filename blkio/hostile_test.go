package blkio

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestErrorsNameTheLine verifies that the error of each parser names the file and the line,
// and quotes no more than the begin of a long line.
func TestErrorsNameTheLine(t *testing.T) {
	long := strings.Repeat(" x=1", 1000)
	for want, parse := range map[string]func(string) error{
		`parse io.max, line 3 "8:16 wbps=0`:           func(s string) error { _, err := ParseIOMax(s + "8:16 wbps=0" + long); return err },
		`parse io.stat, line 3 "8:16 rbytes=-1`:       func(s string) error { _, err := ParseIOStat(s + "8:16 rbytes=-1" + long); return err },
		`parse io.cost.qos, line 3 "8:16 enable=2`:    func(s string) error { _, err := ParseIOCostQOS(s + "8:16 enable=2" + long); return err },
		`parse io.weight, line 3 "8:16 0`:             func(s string) error { _, err := ParseIOWeight("default 1" + s + "8:16 0"); return err },
		`parse io.weight, line 3 "default weighty": `: func(s string) error { _, err := ParseIOWeight(s + "default weighty"); return err },
	} {
		err := parse("\n(unknown)\n")
		if err == nil || !strings.HasPrefix(err.Error(), want) || len(err.Error()) > 200 {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// TestParsersTakeOddText verifies that each parser either refuses a text or returns values
// that a later write could hold.
func TestParsersTakeOddText(t *testing.T) {
	for _, in := range []string{
		"\n\n\n", " ", "\x00", "8:16\x00wbps=1", "8:16\twbps=5", "8:16 wbps=5\r\n", "8:16  wbps=5   rbps=6 \n",
		"8:16 wbps==5", "8:16 =5", "8:16 wbps=", "8:16 wbps=+5", "8:16 wbps=5 wbps=6", "8:16 wbps=5\n8:16 wbps=6\n",
		"+8:16 wbps=5", "8:+16 wbps=5", "08:016 wbps=05", "8:16 wbps=0x10", "8:16 wbps=1_000", "8:16 WBPS=5", "８:16 wbps=5",
	} {
		limits, err := ParseIOMax(in)
		if err != nil && limits != nil {
			t.Errorf("%q: limits beside the error %v", in, err)
		}
		for dev, l := range limits {
			for k, amount := range l {
				if amount == Unset {
					t.Errorf("%q: %v has no %s", in, dev, Key(k))
				}
			}
		}
		if stat, err := ParseIOStat(in); err != nil && stat != nil {
			t.Errorf("%q: counters beside the error %v", in, err)
		}
		if cost, err := ParseIOCostQOS(in); err != nil && cost != nil {
			t.Errorf("%q: io.cost.qos beside the error %v", in, err)
		}
		if w, err := ParseIOWeight("default 100\n" + in); err == nil && (w.Default < MinWeight || w.Default > MaxWeight) {
			t.Errorf("%q: weight %d", in, w.Default)
		}
	}
}

// TestLastLineWins verifies that a repeated device or key has the value of its last
// occurrence, as each would have after such writes.
func TestLastLineWins(t *testing.T) {
	disk := Dev{8, 16}
	limits, err := ParseIOMax("8:16 wbps=5 wbps=6\n")
	if err != nil || limits[disk][Wbps] != 6 {
		t.Errorf("a repeated key: %v, %v", limits, err)
	}
	limits, err = ParseIOMax("8:16 wbps=5\n8:16 rbps=7\n")
	if err != nil || limits[disk] != (Limits{7, Max, Max, Max}) {
		t.Errorf("a repeated device: %v, %v", limits, err)
	}
	weights, err := ParseIOWeight("default 100\n8:16 200\ndefault 300\n8:16 400\n")
	if err != nil || weights.Default != 300 || weights.Devices[disk] != 400 {
		t.Errorf("repeated weights: %v, %v", weights, err)
	}
}

// TestWeightBounds verifies both bounds of io.weight, of the default and of a device.
func TestWeightBounds(t *testing.T) {
	for _, tt := range []struct {
		in string
		ok bool
	}{
		{"default 1", true},
		{"default 10000", true},
		{"default 0", false},
		{"default 10001", false},
		{"default -1", false},
		{"default 4294967396", false}, // 100 in 32 bits
		{"default", false},
		{"default 100\n8:0 1", true},
		{"default 100\n8:0 0", false},
		{"default 100\n8 100", false},
		{"default 100\n(unknown) 100", true},
		{"8:0 100", false}, // without a default
	} {
		if w, err := ParseIOWeight(tt.in); (err == nil) != tt.ok {
			t.Errorf("%q: %v, %v", tt.in, w, err)
		}
	}
}

// TestWeightsString verifies that io.weight is formatted as the kernel prints it.
func TestWeightsString(t *testing.T) {
	w := Weights{Default: 100, Devices: map[Dev]uint32{{8, 16}: 200, {8, 0}: 1, {253, 0}: 10000}}
	want := "default 100\n8:0 1\n8:16 200\n253:0 10000\n"
	if got := w.String(); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestStatBytes verifies that reads, writes and discards are counted, and operations not.
func TestStatBytes(t *testing.T) {
	s := Stat{Rbytes: 1, Wbytes: 20, Dbytes: 300, Rios: 1000, Wios: 1000, Dios: 1000}
	if got := s.Bytes(); got != 321 {
		t.Errorf("%d bytes", got)
	}
	if got := (Stat{}).Bytes(); got != 0 {
		t.Errorf("%d bytes of nothing", got)
	}
	in := map[Dev]Stat{{8, 16}: s, {8, 0}: {Wios: 1}}
	text := formatIOStat(in)
	want := "8:0 rbytes=0 wbytes=0 rios=0 wios=1 dbytes=0 dios=0\n8:16 rbytes=1 wbytes=20 rios=1000 wios=1000 dbytes=300 dios=1000\n"
	if text != want {
		t.Errorf("got %q, want %q", text, want)
	}
	if again, err := ParseIOStat(text); err != nil || len(again) != 2 || again[Dev{8, 16}] != s {
		t.Errorf("read again: %v, %v", again, err)
	}
}

// TestUnknownDisk verifies that a disk that stands for an unknown one equals no disk of a node, with any device
// number, and is written without a number.
func TestUnknownDisk(t *testing.T) {
	one, other := UnknownDisk(1, "the disk of claim a"), UnknownDisk(2, "the disk of claim b")
	if one == other || one.Dev == other.Dev || !one.Dev.IsUnknown() {
		t.Errorf("%v and %v", one, other)
	}
	if got := one.String(); got != "the disk of claim a" {
		t.Errorf("got %q", got)
	}
	if got := (Disk{Dev: Dev{8, 16}, Name: "sdb"}).String(); got != "disk sdb 8:16" {
		t.Errorf("got %q", got)
	}
	// Linux has 12 bits of major and 20 bits of minor numbers (MINORBITS in kdev_t.h).
	for _, dev := range []Dev{{}, {8, 16}, {1<<12 - 1, 1<<20 - 1}} {
		if dev.IsUnknown() {
			t.Errorf("%v is unknown", dev)
		}
	}
}

// TestDevOf compares with the decoding of glibc's macros, as x/sys has them.
func TestDevOf(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	numbers := []uint64{0, 1, 255, 256, 1 << 20, 1<<32 - 1, 1 << 32, 1<<64 - 1}
	for range 1000 {
		numbers = append(numbers, rng.Uint64())
	}
	for _, n := range numbers {
		if got, want := DevOf(n), (Dev{unix.Major(n), unix.Minor(n)}); got != want {
			t.Errorf("%#x is %v, want %v", n, got, want)
		}
	}
}

// TestTri verifies the words of a probe's answer in JSON, which programs read.
func TestTri(t *testing.T) {
	got, err := json.Marshal(map[string]Tri{"a": Unknown, "b": No, "c": Yes})
	if want := `{"a":"unknown","b":"no","c":"yes"}`; err != nil || string(got) != want {
		t.Errorf("got %s, %v, want %s", got, err, want)
	}
	var zero Tri
	if zero != Unknown {
		t.Error("the zero value is an answer")
	}
}

// TestMostIsWithinTheKernel verifies that the largest amount of each key is written as a
// plain decimal and is not mistaken for "max".
func TestMostIsWithinTheKernel(t *testing.T) {
	for k := range numKeys {
		got, err := ParseAmount(k.Most().String())
		if err != nil || got != k.Most() || got == Max || got == Unset {
			t.Errorf("%s: %s, %v", k, got, err)
		}
		if k.IsRate() && !k.IsBytes() && k.Most() >= 1<<32-1 {
			t.Errorf("%s: the kernel keeps operations in 32 bits, whose largest is max", k)
		}
	}
}

// TestUnsetIsNoLimit verifies that limits which set nothing format as no line's text.
func TestUnsetIsNoLimit(t *testing.T) {
	if !(Limits{}).IsZero() || (Limits{Wbps: Max}).IsZero() {
		t.Error("only limits without a key are zero")
	}
	if got := FormatIOMax(nil); got != "" {
		t.Errorf("no devices: %q", got)
	}
}

func FuzzParseDev(f *testing.F) {
	f.Add("8:16")
	f.Add("4294967295:0")
	f.Add("8:16:1")
	f.Fuzz(func(t *testing.T, in string) {
		dev, err := ParseDev(in)
		if err != nil {
			return
		}
		if again, err := ParseDev(dev.String()); err != nil || again != dev {
			t.Errorf("%q is %v, and %v again, %v", in, dev, again, err)
		}
	})
}

func FuzzParseValues(f *testing.F) {
	f.Add(true, "8:16 rbps=2 wbps=max riops=max wiops=5\n")
	f.Add(false, "default 100\n8:16 200\n")
	f.Fuzz(func(t *testing.T, isIOMax bool, in string) {
		file := IOWeight
		if isIOMax {
			file = IOMax
		}
		values, err := ParseValues(file, in)
		if err != nil {
			return
		}
		for _, v := range values.Sorted() {
			if v.File() != file || v.Amount == Unset {
				t.Errorf("%q has %v", in, v)
			}
		}
		for _, line := range Lines(values.Sorted()) {
			if strings.ContainsAny(line.Text, "\n\x00") {
				t.Errorf("%q has the line %q", in, line.Text)
			}
			text := line.Text
			if file == IOWeight {
				text = fmt.Sprintf("default %s\n%s", values.At(Address{Key: Weight}).Amount, text) // the later line counts
			}
			again, err := ParseValues(file, text)
			if err != nil {
				t.Errorf("%q has the line %q: %v", in, line.Text, err)
			}
			for at, amount := range again {
				if values.At(at).Amount != amount {
					t.Errorf("%q: %v is %s in %q", in, at, amount, line.Text)
				}
			}
		}
	})
}
