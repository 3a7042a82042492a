package policy

import (
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

const keyWeight = "weight.blkio.noderesource.dev/"

// TestWeightBound verifies that a pod cannot take a share from others unless the policy allows it.
func TestWeightBound(t *testing.T) {
	refused := func(scope, value, most string) string {
		return "nri-blkio: " + keyWeight + scope + `: "` + value + `": the weight is too large (write at most ` + most + ", bounds.weight.max of the node policy)"
	}
	for _, tt := range []struct {
		policy, scope, value string
		want                 blkio.Amount
		err                  string
	}{
		{"", "container.db", "100", 100, ""},
		{"", "container.db", "1", 1, ""},
		{"", "container.db", "101", 0, refused("container.db", "101", "100")},
		{"", "containers", "10000", 0, refused("containers", "10000", "100")},
		{"", "pod-total", "100", 100, ""},
		{"", "pod-total", "10000", 0, refused("pod-total", "10000", "100")},
		{"bounds: {weight: {max: 50}}", "containers", "51", 0, refused("containers", "51", "50")},
		{"bounds: {weight: {max: 10000}}", "pod-total", "10000", 10000, ""},
	} {
		p, err := ParseFile([]byte(fileHead + tt.policy))
		if err != nil {
			t.Fatal(err)
		}
		r := annotation.Parse(map[string]string{keyWeight + tt.scope: tt.value})
		decide := func() (Desired, error) { return p.of(r).Container(db()) }
		if tt.scope == "pod-total" {
			decide = func() (Desired, error) { return p.of(r).Total([]Container{db()}) }
			if _, err := p.of(r).Container(db()); (err != nil) != (tt.err != "") {
				t.Errorf("%s %s: a container with it: %v", tt.scope, tt.value, err)
			}
		}
		d, err := decide()
		got := ""
		if err != nil {
			got = err.Error()
		}
		if diff := cmp.Diff(tt.err, got); diff != "" || amount(d, blkio.Weight) != tt.want {
			t.Errorf("%q, %s %s: weight %d, want %d, -want +got:\n%s", tt.policy, tt.scope, tt.value, amount(d, blkio.Weight), tt.want, diff)
		}
		if errs := p.of(r).Check(); (len(errs) > 0) != (tt.err != "") {
			t.Errorf("%s %s: without a container: %v", tt.scope, tt.value, errs)
		}
	}
}

// TestWeightBoundBestEffort verifies that a weight that is refused leaves the weight of the wider scope.
func TestWeightBoundBestEffort(t *testing.T) {
	r := annotation.Parse(map[string]string{keyWeight + "container.db": "500", keyWeight + "containers": "50"})
	d, err := Default().of(r).Container(db())
	if err == nil || amount(d, blkio.Weight) != 50 {
		t.Errorf("weight %d, %v, want 50 beside an error", amount(d, blkio.Weight), err)
	}
}

// TestWeightScopes verifies that a weight of container.NAME on all disks holds in place of one of containers on
// a single disk, although the kernel prefers the latter.
func TestWeightScopes(t *testing.T) {
	for _, tt := range []struct{ named, each, want string }{
		{"* 50", "/data 90; rootfs 80", "50"},
		{"50", "/data 90; * 80", "50"},
		{"* 50; /data 40", "/data 90; /data/wal 30", "50 sdb=40"},
		{"/data 40", "/data 90; /data/wal 30; * 70", "70 sdb=40 sdc=30"},
	} {
		r := annotation.Parse(map[string]string{keyWeight + "container.db": tt.named, keyWeight + "containers": tt.each})
		d, err := Default().of(r).Container(db())
		var got []string
		for _, s := range d.Settings {
			got = append(got, strings.TrimLeft(d.Disks[s.Dev]+"="+s.Amount.String(), "="))
		}
		if text := strings.Join(got, " "); err != nil || text != tt.want || len(d.Weighted) == 0 {
			t.Errorf("%s, %s: %s, %v, want %s", tt.named, tt.each, text, err, tt.want)
		}
	}
}

func TestMemoryBoundsDirty(t *testing.T) {
	const gi = 1 << 30
	for _, tt := range []struct {
		name        string
		limit, node uint64
		want        bool
	}{
		{"no limit", NoMemory, 8 * gi, false},
		{"half", 4 * gi, 8 * gi, true},
		{"more than half", 4*gi + 1, 8 * gi, false},
		{"64Ti on any node", 64 << 40, 8 * gi, false},
		{"node unknown", 64 << 40, 0, true},
		{"node unknown, no limit", NoMemory, 0, false},
	} {
		if got := MemoryBoundsDirty(tt.limit, tt.node); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

// threeDisks returns a container with one volume on a logical volume of two disks, another volume on one of these
// disks, and its writable layer on a third disk.
func threeDisks() Container {
	dm := blkio.Disk{Dev: blkio.Dev{Major: 253}, Name: "dm-0"}
	one, two, root := blkio.Disk{Dev: blkio.Dev{Major: 8}, Name: "sda"}, blkio.Disk{Dev: blkio.Dev{Major: 8, Minor: 16}, Name: "sdb"}, blkio.Disk{Dev: blkio.Dev{Major: 8, Minor: 32}, Name: "sdc"}
	return Container{
		Name: "db", MemoryLimited: true, Rootfs: blkio.Backing{Disks: []blkio.Disk{root}},
		Mounts: []Mount{
			{Destination: "/data", Backing: &blkio.Backing{Disks: []blkio.Disk{dm}}},
			{Destination: "/log", Volume: "log", Backing: &blkio.Backing{Disks: []blkio.Disk{two}}},
			{Destination: "/mem", Backing: &blkio.Backing{Reason: "tmpfs is memory, not a disk"}},
			{Destination: "/etc/hosts", Injected: true, Backing: &blkio.Backing{Disks: []blkio.Disk{{Dev: blkio.Dev{Major: 7}, Name: "loop0"}}}},
		},
		Stack: Stack{Physical: map[blkio.Dev][]blkio.Disk{dm.Dev: {one, two}}},
	}
}

// largeWeights returns the default policy with weights up to 1000.
func largeWeights() *Policy {
	p := Default()
	p.Bounds.MaxWeight = 1000
	return p
}

// TestWeightsOfDisks verifies that a path wins over rootfs, and that wins over the weight for all disks.
// Weights apply to the physical disks below.
func TestWeightsOfDisks(t *testing.T) {
	p := largeWeights()
	for _, tt := range []struct{ value, want, weighted, err string }{
		{value: "500", want: "default=500", weighted: "sda sdb sdc"},
		{value: "* 500", want: "default=500", weighted: "sda sdb sdc"},
		{value: "/data 500", want: "8:0=500 8:16=500", weighted: "sda sdb"},
		{value: "/data 500; * 50", want: "default=50 8:0=500 8:16=500", weighted: "sda sdb sdc"},
		{value: "rootfs 7; @log 8", want: "8:16=8 8:32=7", weighted: "sdb sdc"},
		{value: "/data 500; @log 400", want: "8:0=500 8:16=400", weighted: "sda sdb", err: `entry 2 "@log 400": conflicting weight on disk sdb 8:16: "@log" has 400, "/data" in entry 1 has 500 (write one value for both)`},
		{value: "/data 500; /log 500", want: "8:0=500 8:16=500", weighted: "sda sdb"},
		{value: "/mem 5", err: `entry 1 "/mem 5": "/mem" cannot have a weight: tmpfs is memory, not a disk (remove the entry, or use a volume on a local disk)`},
		{value: "/none 5", want: "", err: `entry 1 "/none 5": "/none" is on no mount of the container`},
		{value: "/data 1001; rootfs 5", want: "8:32=5", weighted: "sdc", err: `entry 1 "/data 1001": the weight is too large (write at most 1000, bounds.weight.max of the node policy)`},
	} {
		r := annotation.Parse(map[string]string{keyWeight + "container.db": tt.value})
		d, err := p.of(r).Container(threeDisks())
		if (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%q:\n got %v\nwant %s", tt.value, err, tt.err)
		}
		var got []string
		for _, s := range d.Settings {
			at := "default"
			if s.Key == blkio.DiskWeight {
				at = s.Dev.String()
			}
			got = append(got, at+"="+s.Amount.String())
		}
		if strings.Join(got, " ") != tt.want || strings.Join(blkio.DiskNames(d.Weighted), " ") != tt.weighted {
			t.Errorf("%q: %q on %q, want %q on %q", tt.value, got, blkio.DiskNames(d.Weighted), tt.want, tt.weighted)
		}
	}
}

// TestWeightsOfScopes verifies that container.NAME wins over containers for each disk separately, and that a
// limit beside it stays.
func TestWeightsOfScopes(t *testing.T) {
	r := annotation.Parse(map[string]string{
		keyWeight + "container.db": "/log 5", keyWeight + "containers": "/data 6; * 7", "limits.blkio.noderesource.dev/containers": "/data wbps=1Mi",
	})
	d, err := largeWeights().of(r).Container(threeDisks())
	var lines []string
	for _, l := range d.Settings.Lines() {
		lines = append(lines, l.String())
	}
	want := "io.max 253:0 wbps=1048576, io.weight default 7, io.weight 8:0 6, io.weight 8:16 5"
	if got := strings.Join(lines, ", "); err != nil || got != want {
		t.Errorf("%v\n got %s\nwant %s", err, got, want)
	}
	if err := d.dropFile(blkio.IOWeight); err == nil || len(d.Settings) != 1 || d.Weighted != nil {
		t.Errorf("without io.weight: %v, %v", err, d.Settings)
	}
}

// TestWeightsOfPod verifies that the weight of a pod applies to the physical disks below the volumes of all its
// containers, each on logical volumes of its own.
func TestWeightsOfPod(t *testing.T) {
	var cs []Container
	for i, below := range [][]blkio.Disk{{sda}, {sda, sdb}, {sdc}} {
		lv := blkio.Disk{Dev: blkio.Dev{Major: 253, Minor: uint32(i)}, Name: "dm-" + strconv.Itoa(i)}
		cs = append(cs, Container{
			Name: "c" + strconv.Itoa(i), Mounts: []Mount{mount("/data", on(lv))}, Stack: Stack{Physical: map[blkio.Dev][]blkio.Disk{lv.Dev: below}},
		})
	}
	for _, tt := range []struct{ value, want, weighted string }{
		{value: "50", want: "io.weight default 50", weighted: "sda sdb sdc"},
		{value: "/data 50", want: "io.weight 8:0 50, io.weight 8:16 50, io.weight 8:32 50", weighted: "sda sdb sdc"},
	} {
		for n := 1; n <= len(cs); n++ {
			d, err := Default().of(annotation.Parse(map[string]string{keyWeight + "pod-total": tt.value})).Total(cs[:n])
			var lines []string
			for _, l := range d.Settings.Lines() {
				lines = append(lines, l.String())
			}
			got, weighted := strings.Join(lines, ", "), strings.Join(blkio.DiskNames(d.Weighted), " ")
			if n == len(cs) && (got != tt.want || weighted != tt.weighted) || n == 1 && weighted != "sda" || err != nil {
				t.Errorf("%q, %d containers: %s on %s, %v", tt.value, n, got, weighted, err)
			}
		}
	}
}
