package blockio

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/intel/goresctrl/pkg/blockio"
	"golang.org/x/sys/unix"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/check"
	"github.com/nri-blkio/nri-blkio/plugin/manifest"
	"github.com/nri-blkio/nri-blkio/plugin/migrate"
	"github.com/nri-blkio/nri-blkio/policy"
)

// device is a block device that goresctrl finds by its name.
type device struct {
	path         string
	major, minor int64
}

// blockDevice returns a block device of this machine. goresctrl ignores elements whose devices are absent.
func blockDevice(t *testing.T) (device, bool) {
	t.Helper()
	paths, err := filepath.Glob("/dev/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		var st unix.Stat_t
		if unix.Lstat(path, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFBLK {
			return device{path, int64(unix.Major(st.Rdev)), int64(unix.Minor(st.Rdev))}, true
		}
	}
	return device{}, false
}

// parameters are the names of the keys in a file of blockio classes.
var parameters = [blkio.NumLimits]string{
	blkio.Rbps: "ThrottleReadBps", blkio.Wbps: "ThrottleWriteBps", blkio.Riops: "ThrottleReadIOPS", blkio.Wiops: "ThrottleWriteIOPS",
}

// values are those of a class for one device; 0 is none. The weight is the last one.
type values [blkio.NumLimits + 1]uint64

const weight = int(blkio.NumLimits)

// ofRuntime returns what goresctrl gives a container of a class for a device, and the weight on all others.
func ofRuntime(t *testing.T, class string, dev device) (out values, others uint64) {
	t.Helper()
	c, err := blockio.OciLinuxBlockIO(class)
	if err != nil {
		t.Fatal(err)
	}
	if c.Weight != nil {
		others = uint64(*c.Weight)
	}
	out[weight] = others
	for _, w := range c.WeightDevice {
		if w.Major == dev.major && w.Minor == dev.minor {
			out[weight] = uint64(*w.Weight)
		}
	}
	for _, d := range c.ThrottleReadBpsDevice {
		out[blkio.Rbps] += d.Rate // there is one device
	}
	for _, d := range c.ThrottleWriteBpsDevice {
		out[blkio.Wbps] += d.Rate
	}
	for _, d := range c.ThrottleReadIOPSDevice {
		out[blkio.Riops] += d.Rate
	}
	for _, d := range c.ThrottleWriteIOPSDevice {
		out[blkio.Wiops] += d.Rate
	}
	return out, others
}

// ofPlugin returns what the plugin gives a container of a class of the converted policy, on each disk.
func ofPlugin(t *testing.T, p *policy.Policy, class string) (out values) {
	t.Helper()
	m := &manifest.Pod{
		Object:      manifest.Object{Namespace: "default", Name: "p"},
		Annotations: map[string]string{"class.blkio.noderesource.dev/containers": class},
		Containers:  []manifest.Container{{Name: "c", Role: manifest.Main}},
	}
	checker := check.Checker{Policy: p}
	d := checker.Pod(t.Context(), m).Decided.Containers[0]
	if d.Class != class || d.Refused != "" {
		t.Fatalf("class %q instead of %q, refused: %s", d.Class, class, d.Refused)
	}
	for _, s := range d.Settings {
		if s.Key == blkio.Weight {
			out[weight] = uint64(s.Amount)
		} else if s.Key.IsRate() {
			out[s.Key] = uint64(s.Amount)
		}
	}
	return out
}

// element returns a random element of a class.
func element(rnd *rand.Rand, dev string) string {
	var fields []string
	switch rnd.IntN(4) {
	case 0, 1:
		fields = append(fields, fmt.Sprintf("Devices: [%q]", dev))
	case 2:
		fields = append(fields, [...]string{`Devices: ["/absent/*"]`, `Devices: []`, fmt.Sprintf(`Devices: ["/absent/x", %q]`, dev)}[rnd.IntN(3)])
	}
	for k, name := range parameters {
		if rnd.IntN(4) == 0 {
			rates := [...]string{"0", "1", "100", "70k", "2M", "3Mi", "5M"}
			if k == int(blkio.Riops) || k == int(blkio.Wiops) {
				rates = [...]string{"0", "1", "7", "8", "2k", "300", "4k"}
			}
			fields = append(fields, name+": "+rates[rnd.IntN(len(rates))])
		}
	}
	if rnd.IntN(3) == 0 {
		fields = append(fields, fmt.Sprintf("Weight: %d", 10+rnd.IntN(991)))
	}
	return "{" + strings.Join(fields, ", ") + "}"
}

// TestConversion verifies that the conversion of a random class reports each value that differs from that of
// the runtimes, and that no limit becomes larger, unless it is under the floor.
func TestConversion(t *testing.T) {
	dev, found := blockDevice(t)
	if !found {
		dev.path = "/dev/absent"
		t.Log("this machine has no block device: only weights without devices are compared")
	}
	blockio.SetLogger(slog.New(slog.DiscardHandler)) // it warns of each class
	compared := 0
	for seed := range uint64(500) {
		rnd := rand.New(rand.NewPCG(seed, 6))
		var elements []string
		for range rnd.IntN(4) {
			elements = append(elements, element(rnd, dev.path))
		}
		file := "Classes: {a: [" + strings.Join(elements, ", ") + "]}"
		if err := blockio.SetConfigFromData([]byte(file), true); err != nil { // as containerd does
			t.Fatalf("%s: %v", file, err)
		}
		runtime, others := ofRuntime(t, "a", dev)
		text, differences, err := migrate.Convert([]byte(file))
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		p, err := policy.ParseFile([]byte(text))
		if err != nil {
			t.Fatalf("%s: %v\n%s", file, err, text)
		}
		plugin, about := ofPlugin(t, p, "a"), fmt.Sprint(differences)
		for k, got := range plugin {
			compared++
			if problem := compare(k, got, runtime[k], others, about, found); problem != "" {
				t.Errorf("%s\n%s%s", file, text, problem)
			}
		}
	}
	if compared < 2500 {
		t.Errorf("only %d values compared", compared)
	}
}

// compare returns what is wrong with a value of the policy, or "". about has the differences.
func compare(k int, got, want, others uint64, about string, hasDevice bool) string {
	if k == weight {
		same := got == want && got == others || got == blkio.DefaultWeight && others == 0 && want == 0
		if !same && !strings.Contains(strings.ToLower(about), "weight") {
			return fmt.Sprintf("weight %d in place of %d and %d, without a word", got, want, others)
		}
		return ""
	}
	key := blkio.Key(k)
	isReported := strings.Contains(about, parameters[k]) || got != 0 && want == 0 && strings.Contains(about, "the limits of Devices /")
	switch {
	case got == want:
		return ""
	case !isReported && hasDevice:
		return fmt.Sprintf("%s=%d in place of %d, without a word", key, got, want)
	case want != 0 && (got == 0 || got > want && !strings.Contains(about, "under the floor")):
		return fmt.Sprintf("%s=%d is looser than %d", key, got, want)
	}
	return ""
}

// TestRefused verifies that a value that the runtimes reject is an error of the conversion.
func TestRefused(t *testing.T) {
	for _, value := range []string{"Weight: 9", "Weight: 1001", "Weight: x", "Devices: [/a], ThrottleReadBps: 5MB", "Devices: [/a], ThrottleReadIOPS: -1"} {
		file := []byte("Classes: {a: [{" + value + "}]}")
		if err := blockio.SetConfigFromData(file, false); err == nil {
			t.Errorf("goresctrl accepts %s", value)
		}
		if _, _, err := migrate.Convert(file); err == nil {
			t.Errorf("the conversion accepts %s", value)
		}
	}
}

// TestDocumented verifies that the example in goresctrl's documentation can be converted.
func TestDocumented(t *testing.T) {
	data, err := os.ReadFile("../../cmd/nri-blkio/testdata/script/check_migrate.txtar")
	if err != nil {
		t.Fatal(err)
	}
	_, file, _ := strings.Cut(string(data), "-- blockio.yaml --\n")
	file, _, _ = strings.Cut(file, "-- policy.txt --\n")
	if err := blockio.SetConfigFromData([]byte(file), true); err != nil {
		t.Fatalf("%v\n%s", err, file)
	}
	text, _, err := migrate.Convert([]byte(file))
	if err != nil {
		t.Fatal(err)
	}
	p, err := policy.ParseFile([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if names := blockio.GetClasses(); len(names) < 5 || len(p.Classes) != len(names) {
		t.Errorf("%d classes of %q", len(p.Classes), names)
	}
}
