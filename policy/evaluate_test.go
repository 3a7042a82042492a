package policy

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

func TestContainer(t *testing.T) {
	tests := []struct {
		name     string
		db, each string // annotations
		want     []string
	}{
		{"nothing", "", "", nil},
		{"the longest mount", "/data/wal/00 wbps=1Mi", "", []string{"sdc wbps=1048576"}},
		{"a mount is no prefix of a name", "/data/walrus wbps=1Mi", "", []string{"sdb wbps=1048576"}},
		{"all keys", "/data rbps=1M wbps=2M riops=3k wiops=40", "", []string{"sdb rbps=1000000 wbps=2000000 riops=3000 wiops=40"}},
		{"separators and comments", "\r\n;\n# a; b\n/data wbps=1Mi;\r\n\t# c\n rootfs wbps=2Mi ;;\n", "", []string{"sda wbps=2097152", "sdb wbps=1048576"}},
		{"forms of numbers", "/data rbps=+1e6 wbps=0.5Mi riops=1.5k wiops=1E3", "", []string{"sdb rbps=1000000 wbps=524288 riops=1500 wiops=1000"}},
		{"the largest", "/data wbps=9223372036854775806 wiops=4294967294", "", []string{"sdb wbps=9223372036854775806 wiops=4294967294"}},
		{"the smallest", "/data wbps=64Ki wiops=8", "", []string{"sdb wbps=65536 wiops=8"}},
		{"a file that was injected may be named", "/etc/hosts wbps=1Mi", "", []string{"sda wbps=1048576"}},

		{"star", "* wbps=1Mi", "", []string{"sda wbps=1048576", "sdb wbps=1048576", "sdc wbps=1048576"}},
		{"rootfs beats star", "* wbps=1Mi wiops=50; rootfs wbps=2Mi", "", []string{"sda wbps=2097152 wiops=50", "sdb wbps=1048576 wiops=50", "sdc wbps=1048576 wiops=50"}},
		{"a path beats star, in any order", "/data wbps=2Mi; * wbps=1Mi", "", []string{"sda wbps=1048576", "sdb wbps=2097152", "sdc wbps=1048576"}},
		{"a path beats rootfs", "/etc/hosts wbps=3Mi; rootfs wbps=2Mi rbps=2Mi", "", []string{"sda rbps=2097152 wbps=3145728"}},
		{"equal values are no conflict", "/data wbps=1Mi; /logs wbps=1024Ki rbps=1Mi", "", []string{"sdb rbps=1048576 wbps=1048576"}},

		{"containers", "", "rootfs wbps=1Mi", []string{"sda wbps=1048576"}},
		{"containers skips a mount that is not there", "", "/nope wbps=1Mi; /data wbps=1Mi", []string{"sdb wbps=1048576"}},
		{"container beats containers by disk and key", "/data wbps=1Mi", "/data wbps=9Mi rbps=9Mi; rootfs wbps=9Mi", []string{"sda wbps=9437184", "sdb rbps=9437184 wbps=1048576"}},
		{"even its star beats a path", "* wbps=1Mi", "/data wbps=9Mi", []string{"sda wbps=1048576", "sdb wbps=1048576", "sdc wbps=1048576"}},
		{"max takes a default away", "/data wbps=max", "* wbps=1Mi", []string{"sda wbps=1048576", "sdb wbps=max", "sdc wbps=1048576"}},
		{"a conflict that does not decide", "/data wbps=1Mi", "/data wbps=2Mi; /logs wbps=3Mi", []string{"sdb wbps=1048576"}},
		{"max is no limit on memory", "/scratch wbps=max", "", nil},
	}
	for _, tt := range tests {
		annotations := map[string]string{"example.com/other": "x"}
		if tt.db != "" {
			annotations[keyDB] = tt.db
		}
		if tt.each != "" {
			annotations[keyEach] = tt.each
		}
		d, err := Default().of(annotation.Parse(annotations)).Container(db())
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
		if diff := cmp.Diff(tt.want, limits(d)); diff != "" {
			t.Errorf("%s: -want +got:\n%s", tt.name, diff)
		}
	}
}

func TestSources(t *testing.T) {
	long := "/data/" + strings.Repeat("ü", 40)
	r := annotation.Parse(map[string]string{keyDB: "rootfs wbps=1Mi\n" + long + " rbps=1Mi", keyEach: "* wbps=2Mi"})
	d, err := Default().of(r).Container(db())
	if err != nil {
		t.Fatal(err)
	}
	want := Settings{
		{Value: set(sda, blkio.Wbps, 1<<20).Value, Source: from(keyDB, 1, "rootfs")},
		{Value: set(sdb, blkio.Rbps, 1<<20).Value, Source: from(keyDB, 2, "/data/"+strings.Repeat("ü", 27)+"...")},
		{Value: set(sdb, blkio.Wbps, 2<<20).Value, Source: from(keyEach, 1, "*")},
		{Value: set(sdc, blkio.Wbps, 2<<20).Value, Source: from(keyEach, 1, "*")},
	}
	if diff := cmp.Diff(want, d.Settings); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestStar(t *testing.T) {
	c := Container{Name: "db", Rootfs: tmpfs(), Mounts: []Mount{
		readOnly(mount("/models", on(sdb))),
		mount("/scratch", tmpfs()),
		injected(mount("/etc/hosts", on(sda))),
	}}
	const noWrite = `nri-blkio: ` + keyDB + `: entry 1 "* %s": no disk to limit wbps on: rootfs: tmpfs is memory, not a disk, and 1 more (remove the entry, or use a volume on a local disk)`
	skipped := []Skipped{
		{from(keyDB, 1, "*"), "rootfs", "tmpfs is memory, not a disk"},
		{from(keyDB, 1, "*"), "/scratch", "tmpfs is memory, not a disk"},
	}
	tests := []struct {
		keys string
		err  string
		want []string
	}{
		{"rbps=1Mi riops=50", "", []string{"sdb rbps=1048576 riops=50"}},
		{"wbps=1Mi", fmt.Sprintf(noWrite, "wbps=1Mi"), nil},
		{"rbps=1Mi wbps=1Mi", fmt.Sprintf(noWrite, "rbps=1Mi wbps=1Mi"), []string{"sdb rbps=1048576"}},
		{"wbps=max", "", nil},
	}
	for _, tt := range tests {
		d, err := Default().of(annotation.Parse(map[string]string{keyDB: "* " + tt.keys})).Container(c)
		if got := fmt.Sprint(err); got != tt.err && (tt.err != "" || err != nil) {
			t.Errorf("%s:\n got %s\nwant %s", tt.keys, got, tt.err)
		}
		if err != nil && asError(t, err).Kind() != annotation.Unenforceable {
			t.Errorf("%s: %v is %v", tt.keys, err, asError(t, err).Kind())
		}
		if diff := cmp.Diff(tt.want, limits(d)); diff != "" {
			t.Errorf("%s: -want +got:\n%s", tt.keys, diff)
		}
		if diff := cmp.Diff(skipped, d.Skipped); diff != "" {
			t.Errorf("%s: skipped: -want +got:\n%s", tt.keys, diff)
		}
	}
	// A read-only volume that is the only one is no disk to write to, but an entry with its path selects it.
	c.Rootfs = on(sda)
	d, err := Default().of(annotation.Parse(map[string]string{keyDB: "* wbps=1Mi; /models wbps=2Mi"})).Container(c)
	if diff := cmp.Diff([]string{"sda wbps=1048576", "sdb wbps=2097152"}, limits(d)); diff != "" || err != nil {
		t.Errorf("%v, -want +got:\n%s", err, diff)
	}
}

func TestSeveralDisksAndWarnings(t *testing.T) {
	c := db()
	c.MemoryLimited = true
	btrfs := on(sdb, sdc)
	btrfs.Warning = &blkio.Warning{Kind: "shared", Text: "each of 2 disks gets the limit"}
	c.Mounts = []Mount{mount("/b", btrfs), mount("/c\x1b", btrfs), mount("/b", btrfs)}
	d, err := Default().of(annotation.Parse(map[string]string{keyDB: "/b wbps=1Mi; * wbps=1Mi"})).Container(c)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"sda wbps=1048576", "sdb wbps=1048576", "sdc wbps=1048576"}, limits(d)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	want := []string{`"/c\x1b": each of 2 disks gets the limit`, "/b: each of 2 disks gets the limit"}
	if diff := cmp.Diff(want, d.Warnings); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if !slices.Equal(d.WarningKinds, []blkio.WarningKind{"shared"}) {
		t.Errorf("kinds %q", d.WarningKinds)
	}
}

func TestNoMemoryLimit(t *testing.T) {
	for value, want := range map[string][]string{
		"rootfs wbps=1Mi": {noMemoryLimit}, "rootfs wiops=100": {noMemoryLimit}, "rootfs rbps=1Mi wbps=max": nil,
	} {
		c := db()
		d, err := Default().of(annotation.Parse(map[string]string{keyDB: value})).Container(c)
		if err != nil || !slices.Equal(d.Warnings, want) || slices.Contains(d.WarningKinds, NoMemoryLimit) != (want != nil) {
			t.Errorf("%s: %q, %q, %v", value, d.Warnings, d.WarningKinds, err)
		}
		c.MemoryLimited = true
		if d, err = Default().of(annotation.Parse(map[string]string{keyDB: value})).Container(c); err != nil || d.Warnings != nil {
			t.Errorf("%s, with a memory limit: %q, %v", value, d.Warnings, err)
		}
	}
}

func TestLaterMountShadows(t *testing.T) {
	c := db()
	c.Mounts = append(c.Mounts, mount("/data", on(sdc)))
	d, err := Default().of(annotation.Parse(map[string]string{keyDB: "/data/x wbps=1Mi"})).Container(c)
	if diff := cmp.Diff([]string{"sdc wbps=1048576"}, limits(d)); diff != "" || err != nil {
		t.Errorf("%v, -want +got:\n%s", err, diff)
	}
}

func TestWeight(t *testing.T) {
	const key = "weight.blkio.noderesource.dev/"
	r := annotation.Parse(map[string]string{key + "container.db": " 500\n", key + "containers": "50", key + "pod-total": "10000"})
	p := Default()
	p.Bounds.MaxWeight = 10000
	for name, want := range map[string]blkio.Amount{"db": 500, "web": 50} {
		d, err := p.of(r).Container(Container{Name: name, Rootfs: on(sda)})
		if err != nil || amount(d, blkio.Weight) != want {
			t.Errorf("%s: %d, %v, want %d", name, amount(d, blkio.Weight), err, want)
		}
	}
	d, err := p.of(r).Total([]Container{db()})
	if w, _ := d.Settings.Weight(); err != nil || w.Amount != 10000 || w.Source != (Source{Kind: FromAnnotation, Name: key + "pod-total"}) {
		t.Errorf("pod-total: %d from %v, %v", w.Amount, w.Source, err)
	}
}

// TestBestEffort verifies that a caller that ignores an error must get the correct rest.
func TestBestEffort(t *testing.T) {
	r := annotation.Parse(map[string]string{
		keyDB:    "/data wpbs=1Mi; rootfs wbps=1Mi; /logs wbps=3Mi; /data/.. wbps=1; /scratch wbps=1Mi",
		keyEach:  "/data wbps=2Mi; /data/x wbps=1Mi; /data/wal wbps=5; /data/wal/x rbps=1Mi",
		keyTotal: "x",
		"weight.blkio.noderesource.dev/container.db": "x",
		"weight.blkio.noderesource.dev/containers":   "7",
	})
	d, err := Default().of(r).Container(db())
	want := []string{
		keyDB + " 1", keyDB + " 4", "weight.blkio.noderesource.dev/container.db 0", keyDB + " 5", keyEach + " 3", keyTotal + " 1",
	}
	var got []string
	for _, e := range d.Errors {
		got = append(got, fmt.Sprint(e.From.Annotation, " ", e.Entry))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("errors: -want +got:\n%s", diff)
	}
	if asError(t, err) != d.Errors[0] {
		t.Errorf("%v is not the first error", err)
	}
	if diff := cmp.Diff([]string{"sda wbps=1048576", "sdb wbps=3145728", "sdc rbps=1048576"}, limits(d)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if amount(d, blkio.Weight) != 7 {
		t.Errorf("weight %d, not the one of containers", amount(d, blkio.Weight))
	}

	// Of a conflict the lower value holds, whichever comes first.
	for _, v := range []string{"/data wbps=2Mi; /logs wbps=1Mi", "/data wbps=1Mi; /logs wbps=2Mi"} {
		d, err := Default().of(annotation.Parse(map[string]string{keyDB: v})).Container(db())
		if diff := cmp.Diff([]string{"sdb wbps=1048576"}, limits(d)); diff != "" || err == nil {
			t.Errorf("%s: %v, -want +got:\n%s", v, err, diff)
		}
	}
}

// TestRejectedErrorComesFirst verifies that an ignored error must not hide a rejected one.
func TestRejectedErrorComesFirst(t *testing.T) {
	r := annotation.Parse(map[string]string{keyDB: "/scratch wbps=1Mi; /nope wbps=1Mi"})
	for _, tt := range []struct {
		onError OnError
		entry   int
		action  Action
	}{
		{OnError{Reject, Reject, Reject}, 1, Reject},
		{OnError{Reject, Ignore, Ignore}, 2, Reject},
		{OnError{Ignore, Reject, Ignore}, 1, Reject},
		{OnError{Ignore, Ignore, Reject}, 1, Ignore},
	} {
		p := Default()
		p.OnError = tt.onError
		_, err := p.of(r).Container(db())
		if e := asError(t, err); e.Entry != tt.entry || p.Action(fmt.Errorf("wrapped: %w", err)) != tt.action {
			t.Errorf("%+v: entry %d, %s: %v", tt.onError, e.Entry, p.Action(err), err)
		}
	}
	p := Default()
	if a := p.Action(errors.New("our own")); a != Ignore || p.Action(nil) != Ignore {
		t.Errorf("an internal error gives %s", a)
	}
}

func TestCheckRuntime(t *testing.T) {
	p := Default()
	r := annotation.Parse(map[string]string{keyEach: "* wbps=1Mi", keyDB: "* wbps=1Mi"})
	if err := p.ForPod(&PodFacts{Handler: "kata"}, annotation.Parse(nil)).checkRuntime(); err != nil {
		t.Errorf("nothing asked: %v", err)
	}
	for _, h := range []string{"", "runc", "crun"} {
		if err := p.ForPod(&PodFacts{Handler: h}, r).checkRuntime(); err != nil {
			t.Errorf("%q: %v", h, err)
		}
	}
	err := p.ForPod(&PodFacts{Handler: "kata-\x1bqemu"}, r).checkRuntime()
	want := `nri-blkio: ` + keyDB + `: the runtime handler "kata-\x1bqemu" is not in hostKernelHandlers of the node policy: its device numbers may differ from the node's (remove the annotation, or add the handler to hostKernelHandlers)`
	if err == nil || err.Error() != want || p.Action(err) != Reject || asError(t, err).Kind() != annotation.Unenforceable {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

// TestDirtyGuard verifies that the guard applies only to containers that are created, and only to those that
// need it.
func TestDirtyGuard(t *testing.T) {
	p := *Default()
	p.Writeback.DirtyGuard = 64 << 20
	request := annotation.Parse(map[string]string{keyDB: "/b wbps=1Mi"})
	for _, tt := range []struct {
		name    string
		limited bool
		stage   Stage
		request *annotation.Request
		want    blkio.Amount
		kind    blkio.WarningKind
	}{
		{"created", false, Created, request, 64 << 20, Guarded},
		{"runs already", false, Running, request, 0, NoMemoryLimit},
		{"has a memory limit", true, Created, request, 0, ""},
		{"no write limit", false, Created, annotation.Parse(map[string]string{keyDB: "/b rbps=1Mi"}), 0, ""},
	} {
		c := db()
		c.MemoryLimited, c.Stage, c.Mounts = tt.limited, tt.stage, []Mount{mount("/b", on(sdb))}
		d, err := p.of(tt.request).Container(c)
		if err != nil || amount(d, blkio.MemoryHigh) != tt.want || (tt.kind == "") != (len(d.Warnings) == 0) || tt.kind != "" && !slices.Contains(d.WarningKinds, tt.kind) {
			t.Errorf("%s: memory.high %d, %q %v, %v", tt.name, amount(d, blkio.MemoryHigh), d.Warnings, d.WarningKinds, err)
		}
	}
}

// TestTotalOfLate verifies that the mounts of a late container add limits of the pod as a whole, and change none.
func TestTotalOfLate(t *testing.T) {
	pod := Default().ForPod(&PodFacts{}, annotation.Parse(map[string]string{keyTotal: "* wbps=1Mi; /big wbps=9Mi; /mem wbps=3Mi; /logs wbps=2Mi"}))
	plain := Container{Name: "plain", Rootfs: on(sda)}
	late := Container{Name: "late", Rootfs: on(sda), Stage: Late, Mounts: []Mount{mount("/big", on(sda)), mount("/logs", on(sdb)), mount("/mem", tmpfs())}}
	got, err := pod.Total([]Container{late, plain})
	if want := []string{"sda wbps=1048576", "sdb wbps=2097152"}; err != nil || !slices.Equal(limits(got), want) {
		t.Errorf("got %q, %v, want %q", limits(got), err, want)
	}
	alone, err := pod.Total([]Container{late})
	if want := []string{"sda wbps=9437184", "sdb wbps=2097152"}; err != nil || !slices.Equal(limits(alone), want) {
		t.Errorf("alone: got %q, %v, want %q", limits(alone), err, want)
	}
}
