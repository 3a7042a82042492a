package blkio

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// modelFile is a control file of a cgroup that behaves as the kernel documents, for writes and for the reads
// after them.
type modelFile struct {
	file   string
	limits map[Dev]Limits
	weight Weights
}

func newModelFile(file string) *modelFile {
	return &modelFile{file: file, limits: map[Dev]Limits{}, weight: Weights{Default: DefaultWeight}}
}

// write is tg_set_limit in block/blk-throttle.c, or ioc_weight_write in block/blk-iocost.c.
// A write is one device; its keys are set all or none; keys that it does not name stay.
func (m *modelFile) write(line string) error {
	words := strings.Fields(line)
	if len(words) < 2 {
		return fmt.Errorf("write %q: invalid argument", line)
	}
	if m.file == IOWeight {
		return m.writeWeight(words[0], words[1])
	}
	var dev Dev
	if _, err := fmt.Sscanf(words[0], "%d:%d", &dev.Major, &dev.Minor); err != nil {
		return err
	}
	limits, ok := m.limits[dev]
	if !ok {
		limits = Limits{Max, Max, Max, Max}
	}
	for _, word := range words[1:] {
		name, value, _ := strings.Cut(word, "=")
		k := slices.Index([]string{"rbps", "wbps", "riops", "wiops"}, name)
		n, err := strconv.ParseUint(value, 10, 64)
		switch {
		case k < 0, value != "max" && (err != nil || n == 0):
			return fmt.Errorf("write %q: invalid argument", line)
		case value == "max":
			limits[k] = Max
		case n == 1: // sanity: a minimum of 2
			return fmt.Errorf("write %q: numerical result out of range", line)
		default:
			limits[k] = Amount(n)
		}
	}
	m.limits[dev] = limits
	return nil
}

func (m *modelFile) writeWeight(name, value string) error {
	n, err := strconv.ParseUint(value, 10, 32)
	dev, devErr := ParseDev(name)
	switch {
	case devErr == nil && value == "default":
		m.weight = m.weight.With(dev, 0)
	case err != nil || n < MinWeight || n > MaxWeight:
		return fmt.Errorf("write %q: invalid argument", name+" "+value)
	case name == "default":
		m.weight.Default = uint32(n)
	case devErr != nil:
		return devErr
	default:
		m.weight = m.weight.With(dev, uint32(n))
	}
	return nil
}

// read leaves out devices without limits, as tg_prfill_limit does.
func (m *modelFile) read() string {
	if m.file == IOWeight {
		return m.weight.String()
	}
	out := maps.Clone(m.limits)
	maps.DeleteFunc(out, func(_ Dev, l Limits) bool { return l == Limits{Max, Max, Max, Max} })
	return FormatIOMax(out)
}

// randomValues returns settings for a few disks, each key of them set or not.
func randomValues(rng *rand.Rand, file string) Values {
	out := Values{}
	if file == IOWeight {
		out[Address{Key: Weight}] = Amount(MinWeight + rng.IntN(MaxWeight))
		for range rng.IntN(3) {
			out[Address{DiskWeight, Dev{8, uint32(rng.IntN(3)) * 16}}] = Amount(MinWeight + rng.IntN(MaxWeight))
		}
		return out
	}
	for range 1 + rng.IntN(4) {
		dev := Dev{uint32(8 + rng.IntN(2)), uint32(rng.IntN(3)) * 16}
		for k := range NumLimits {
			switch rng.IntN(3) {
			case 0:
				out[Address{k, dev}] = Amount(2 + rng.Uint64N(1<<40))
			case 1:
				out[Address{k, dev}] = Max
			}
		}
	}
	return out
}

// TestLinesSetValues verifies, by a model of the kernel, that the writes of Lines set each value and no other.
// The writes of the removals undo them.
func TestLinesSetValues(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 0))
		file := []string{IOMax, IOMax, IOWeight}[rng.IntN(3)]
		kernel := newModelFile(file)
		// These are earlier limits. Those that are not written stay.
		before := randomValues(rng, file)
		want := maps.Clone(before)
		values := randomValues(rng, file)
		maps.Copy(want, values)
		for _, set := range []Values{before, values} {
			for _, line := range Lines(set.Sorted()) {
				if line.File != file {
					t.Fatalf("seed %d: line %v of %s", seed, line, file)
				}
				if err := kernel.write(line.Text); err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
			}
		}
		got, err := ParseValues(file, kernel.read())
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		for at, amount := range want {
			if now := got.At(at); now.Amount != amount {
				t.Errorf("seed %d: %v %s is %s, want %s", seed, at.Dev, at.Key, now.Amount, amount)
			}
		}
		for at := range got {
			if _, ok := want[at]; !ok && got.At(at).IsLimit() {
				t.Errorf("seed %d: %v %s is %s, and was not written", seed, at.Dev, at.Key, got[at])
			}
		}
		var removals []Value
		for _, v := range want.Sorted() {
			removals = append(removals, v.Removal())
		}
		for _, line := range Lines(removals) {
			if err := kernel.write(line.Text); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
		}
		left, err := ParseValues(file, kernel.read())
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range left.Sorted() {
			if v.IsLimit() {
				t.Errorf("seed %d: %v %s is %s after its removal", seed, v.Dev, v.Key, v.Amount)
			}
		}
	}
}

// TestLinesAreComplete verifies that each value is in one line, that a line is about one
// device, and that the lines of a file are sorted.
func TestLinesAreComplete(t *testing.T) {
	for seed := range uint64(200) {
		values := randomValues(rand.New(rand.NewPCG(seed, 1)), IOMax)
		words, seen := 0, map[Dev]bool{}
		var last Dev
		for i, line := range Lines(values.Sorted()) {
			if seen[line.Dev] {
				t.Errorf("seed %d: two lines of %v", seed, line.Dev)
			}
			seen[line.Dev] = true
			if i > 0 && last.Compare(line.Dev) >= 0 {
				t.Errorf("seed %d: %v is behind %v", seed, line.Dev, last)
			}
			last = line.Dev
			if !strings.HasPrefix(line.Text, line.Dev.String()+" ") || line.String() != IOMax+" "+line.Text {
				t.Errorf("seed %d: line %q of %v", seed, line, line.Dev)
			}
			words += len(strings.Fields(line.Text)) - 1
		}
		if words != len(values) {
			t.Errorf("seed %d: %d values in lines of %d", seed, words, len(values))
		}
	}
	if got := Lines(nil); got != nil {
		t.Errorf("lines of nothing: %v", got)
	}
}

// TestLinesOfOneDeviceAndTwoFiles verifies that values of different files are not in one
// write, although both have no device.
func TestLinesOfOneDeviceAndTwoFiles(t *testing.T) {
	values := Values{{Key: Weight}: 50, {Key: MemoryHigh}: 4096}
	want := []Line{{File: IOWeight, Text: "default 50"}, {File: "memory.high", Text: "4096"}}
	if diff := cmp.Diff(want, Lines(values.Sorted())); diff != "" {
		t.Error(diff)
	}
}

// TestAddressOrder verifies that Compare is a total order which keeps the values of a file,
// and of a device in it, together.
func TestAddressOrder(t *testing.T) {
	var all []Address
	for k := range numKeys {
		for _, dev := range []Dev{{}, {8, 0}, {8, 16}, {259, 0}} {
			all = append(all, Address{k, dev})
		}
	}
	for _, a := range all {
		for _, b := range all {
			ab, ba := a.Compare(b), b.Compare(a)
			if ab != -ba || (ab == 0) != (a == b) {
				t.Errorf("%v and %v compare as %d and %d", a, b, ab, ba)
			}
			for _, c := range all {
				if ab < 0 && b.Compare(c) < 0 && a.Compare(c) >= 0 {
					t.Errorf("%v < %v < %v is not transitive", a, b, c)
				}
			}
		}
	}
	slices.SortFunc(all, Address.Compare)
	type group struct {
		file string
		dev  Dev
	}
	ended := map[group]bool{}
	var last group
	for i, a := range all {
		now := group{a.File(), a.Dev}
		if i > 0 && now != last {
			if ended[now] {
				t.Errorf("%v is apart from the others of its device", a)
			}
			ended[last] = true
		}
		last = now
	}
}

// TestValuesAt verifies that a missing address has the kernel's value without a setting.
func TestValuesAt(t *testing.T) {
	disk := Dev{8, 16}
	values := Values{{Wbps, disk}: 1 << 20, {Riops, disk}: Max}
	for _, tt := range []struct {
		at    Address
		want  Amount
		limit bool
	}{
		{Address{Wbps, disk}, 1 << 20, true},
		{Address{Riops, disk}, Max, false},
		{Address{Rbps, disk}, Max, false},
		{Address{Wbps, Dev{8, 0}}, Max, false},
		{Address{Key: Weight}, DefaultWeight, false},
		{Address{DiskWeight, disk}, Unset, false},
		{Address{Key: MemoryHigh}, Max, false},
	} {
		got := values.At(tt.at)
		if got.Address != tt.at || got.Amount != tt.want || got.IsLimit() != tt.limit {
			t.Errorf("%v: %s, a limit: %v", tt.at, got.Amount, got.IsLimit())
		}
		if removal := got.Removal(); removal.IsLimit() || removal.Address != tt.at || removal.Removal() != removal {
			t.Errorf("%v is removed by %v", got, removal)
		}
	}
	if got := Values(nil).At(Address{Wbps, disk}); got.IsLimit() {
		t.Errorf("no values: %v", got)
	}
}
