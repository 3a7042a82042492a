package blockio

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/intel/goresctrl/pkg/blockio"
	oci "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/migrate"
	"github.com/nri-blkio/nri-blkio/policy"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// parameters are the names of the keys in a file of blockio classes.
var parameters = [blkio.NumLimits]string{
	blkio.Rbps: "ThrottleReadBps", blkio.Wbps: "ThrottleWriteBps", blkio.Riops: "ThrottleReadIOPS", blkio.Wiops: "ThrottleWriteIOPS",
}

// ofRuntime returns the lines of io.max that runc and crun write for a class, by goresctrl, and the weight.
func ofRuntime(t *testing.T, class string) (lines []string, weight int) {
	t.Helper()
	c, err := blockio.OciLinuxBlockIO(class)
	if err != nil {
		t.Fatal(err)
	}
	if c.Weight != nil {
		weight = int(*c.Weight)
	}
	var settings []policy.Setting
	for k, devices := range [blkio.NumLimits][]oci.LinuxThrottleDevice{
		blkio.Rbps: c.ThrottleReadBpsDevice, blkio.Wbps: c.ThrottleWriteBpsDevice, blkio.Riops: c.ThrottleReadIOPSDevice, blkio.Wiops: c.ThrottleWriteIOPSDevice,
	} {
		for _, d := range devices {
			at := blkio.Address{Key: blkio.Key(k), Dev: blkio.Dev{Major: uint32(d.Major), Minor: uint32(d.Minor)}}
			settings = append(settings, policy.Setting{Value: blkio.Value{Address: at, Amount: blkio.Amount(d.Rate)}})
		}
	}
	return texts(policy.NewSettings(settings...)), weight
}

func texts(s policy.Settings) (out []string) {
	for _, l := range s.In(blkio.IOMax).Lines() {
		out = append(out, l.Text)
	}
	return out
}

// ofPlugin returns the lines of io.max, and the weight, of a container with an annotation that
// chooses a class, under a policy.
func ofPlugin(t *testing.T, text, class string, c policy.Container) (lines []string, weight int) {
	t.Helper()
	p, err := policy.ParseFile([]byte(text))
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if renamed := regexp.MustCompile(`# class "` + class + `": its name is (\S+) here`).FindStringSubmatch(text); renamed != nil {
		class = renamed[1]
	}
	request := annotation.Parse(map[string]string{"class." + annotation.Domain + "/containers": class})
	d, err := p.ForPod(&policy.PodFacts{}, request).Container(c)
	if err != nil {
		t.Fatalf("class %s: %v\n%s", class, err, text)
	}
	w, _ := d.Settings.Weight()
	return texts(d.Settings), int(w.Amount)
}

// element returns a random element of a class.
func element(rnd *rand.Rand) string {
	var fields []string
	switch rnd.IntN(6) {
	case 0:
	case 1:
		fields = append(fields, [...]string{`Devices: ["/dev/absent*"]`, `Devices: []`}[rnd.IntN(2)])
	default:
		globs := []string{"/dev/sda", "/dev/sd?", "/dev/sd[a-c]", "/dev/nvme*", "/dev/*", "/dev/disk/by-id/*SSD*", "/dev/disk/by-id/[!a]*", "/dev/mapper/*", "/d*v/disk/*/wwn*", "/dev/dm-0"}
		rnd.Shuffle(len(globs), func(i, j int) { globs[i], globs[j] = globs[j], globs[i] })
		fields = append(fields, fmt.Sprintf("Devices: [%q, %q]", globs[0], globs[1]))
	}
	for k, name := range parameters {
		if rnd.IntN(3) == 0 {
			rates := [...]string{"64Ki", "70k", "2M", "3Mi", "5M", "1G"}
			if !blkio.Key(k).IsBytes() {
				rates = [...]string{"8", "2k", "300", "4k", "10k", "4294967294"}
			}
			fields = append(fields, name+": "+rates[rnd.IntN(len(rates))])
		}
	}
	if rnd.IntN(3) == 0 {
		fields = append(fields, fmt.Sprintf("Weight: %d", 10+rnd.IntN(991)))
	}
	return "{" + strings.Join(fields, ", ") + "}"
}

// TestSameLines verifies that a container under the policy of a file of blockio classes has the lines of io.max that
// the runtimes write by the same file, on all disks of a node. Values that the policy cannot have are left out:
// TestReported has them.
func TestSameLines(t *testing.T) {
	n := newNode(t)
	c := n.container()
	blockio.SetLogger(slog.New(slog.DiscardHandler)) // it warns of each class
	compared := 0
	for seed := range uint64(1000) {
		rnd := rand.New(rand.NewPCG(seed, 6))
		var elements []string
		for range 1 + rnd.IntN(4) {
			elements = append(elements, element(rnd))
		}
		file := "Classes: {Some_Class: [" + strings.Join(elements, ", ") + "]}"
		if err := blockio.SetConfigFromData([]byte(n.under(file)), true); err != nil { // as containerd does
			t.Fatalf("%s: %v", file, err)
		}
		want, wantWeight := ofRuntime(t, "Some_Class")
		text, differences, err := migrate.Convert([]byte(file))
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		got, weight := ofPlugin(t, text, "Some_Class", c)
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s\n%s-runtime +plugin:\n%s", file, text, d)
		}
		if weight != wantWeight && (wantWeight != 0 || weight != blkio.DefaultWeight) && !strings.Contains(fmt.Sprint(differences), "the weight") {
			t.Errorf("%s\n%sweight %d, not %d, without a word", file, text, weight, wantWeight)
		}
		compared += len(want)
	}
	if compared < 1000 {
		t.Errorf("only %d lines compared", compared)
	}
}

// TestPartOfTheDisks verifies that a container with some of the node's disks has those lines of the runtimes that
// are about them and the disks below.
func TestPartOfTheDisks(t *testing.T) {
	n := newNode(t)
	const file = `Classes: {a: [{Devices: ["/dev/*", "/dev/disk/by-id/*SSD*"], ThrottleReadBps: 1Mi}]}`
	if err := blockio.SetConfigFromData([]byte(n.under(file)), false); err != nil {
		t.Fatal(err)
	}
	text, differences, err := migrate.Convert([]byte(file))
	if err != nil || len(differences) > 0 {
		t.Fatal(err, differences)
	}
	c := n.container()
	c.Rootfs.Disks = []blkio.Disk{n.disks["dm-0"]} // on sdc
	got, _ := ofPlugin(t, text, "a", c)
	all, _ := ofRuntime(t, "a")
	want := slices.DeleteFunc(all, func(line string) bool {
		dev, _, _ := strings.Cut(line, " ")
		return dev != n.disks["dm-0"].Dev.String() && dev != n.disks["sdc"].Dev.String()
	})
	if d := cmp.Diff(want, got); d != "" || len(got) != 2 {
		t.Errorf("-runtime +plugin:\n%s", d)
	}
}

// TestReported verifies that each value that the policy cannot have is named.
func TestReported(t *testing.T) {
	for value, want := range map[string]string{
		"ThrottleReadBps: 1": "ThrottleReadBps 1 of Devices /dev/sda is under the floor", "ThrottleWriteIOPS: 7": "ThrottleWriteIOPS 7 of Devices /dev/sda is under the floor",
		"ThrottleReadIOPS: 0": "ThrottleReadIOPS 0 of Devices /dev/sda is left out", "Weight: 20": "the weight 20 holds for each disk",
	} {
		_, differences, err := migrate.Convert([]byte("Classes: {a: [{Devices: [/dev/sda], " + value + "}]}"))
		if err != nil || !strings.Contains(fmt.Sprint(differences), want) {
			t.Errorf("%s: %v, %v", value, err, differences)
		}
	}
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

// TestDocumented verifies that the example in goresctrl's documentation has the same lines under the policy.
func TestDocumented(t *testing.T) {
	data, err := os.ReadFile("../../cmd/nri-blkio/testdata/script/check_migrate.txtar")
	if err != nil {
		t.Fatal(err)
	}
	n := newNode(t)
	_, file, _ := strings.Cut(string(data), "-- blockio.yaml --\n")
	file, _, _ = strings.Cut(file, "-- policy.txt --\n")
	if err := blockio.SetConfigFromData([]byte(n.under(file)), true); err != nil {
		t.Fatalf("%v\n%s", err, file)
	}
	text, _, err := migrate.Convert([]byte(file))
	if err != nil {
		t.Fatal(err)
	}
	names := blockio.GetClasses()
	for _, name := range names {
		want, _ := ofRuntime(t, name)
		if name == "slow" { // its values are below the floors
			continue
		}
		if got, _ := ofPlugin(t, text, name, n.container()); cmp.Diff(want, got) != "" {
			t.Errorf("%s: -runtime +plugin:\n%s", name, cmp.Diff(want, got))
		}
	}
	if len(names) < 5 {
		t.Errorf("classes %q", names)
	}
}
