package policy

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// paths returns n entries of different paths.
func paths(n int, keys string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "/data/%d %s;", i, keys)
	}
	return b.String()
}

func containerKey(i int) string {
	return fmt.Sprintf("limits.blkio.noderesource.dev/container.c%02d", i)
}

// TestTooMuch verifies that each container has the one error about too many annotations, and that nothing else
// is decided.
func TestTooMuch(t *testing.T) {
	annotations := map[string]string{keyTotal: "rootfs wbps=1Mi"}
	for i := range 64 {
		annotations[containerKey(i)] = "/data wbps=1Mi"
	}
	r := annotation.Parse(annotations)
	d, err := Default().of(r).Container(Container{Name: "c00", Rootfs: on(sda)})
	if e := asError(t, err); e == nil || e.Kind() != annotation.Invalid || e.From.Annotation != r.First() {
		t.Errorf("got %v", err)
	}
	if diff := cmp.Diff(Desired{Errors: d.Errors}, d); diff != "" || len(d.Errors) != 1 {
		t.Errorf("something was decided: %s", diff)
	}
	if errs := Default().of(r).Check(); len(errs) != 1 || Default().of(r).Unmatched(nil) != nil {
		t.Errorf("%v, %q", errs, Default().of(r).Unmatched(nil))
	}
	if d, err := Default().of(r).Total(pod()); err != nil || d.Settings != nil {
		t.Errorf("pod-total: %v", err)
	}
}

func TestSkippedIsBounded(t *testing.T) {
	c := Container{Name: "db", Rootfs: tmpfs()}
	for i := range 40 {
		c.Mounts = append(c.Mounts, mount(fmt.Sprintf("/m%02d", i), tmpfs()))
	}
	c.Mounts = append(c.Mounts, c.Mounts[20], c.Mounts[39]) // mounted twice, reported once
	// Two of the entry before, then the rest of the "*".
	r := annotation.Parse(map[string]string{keyDB: "/m00 wbps=max; /m01 wbps=max; * wbps=1Mi", keyEach: "* rbps=1Mi"})
	d, err := Default().of(r).Container(c)
	if len(d.Skipped) != 16 || d.SkippedMore != 2+41+41-16 {
		t.Errorf("%d and %d more", len(d.Skipped), d.SkippedMore)
	}
	if s := d.Skipped[2]; s.What != "rootfs" || s.Source.Entry != 3 {
		t.Errorf("got %+v", s)
	}
	var got []string
	for _, e := range d.Errors {
		got = append(got, e.From.Annotation+": "+e.Cause)
	}
	const cause = ": no disk to limit %s on: rootfs: tmpfs is memory, not a disk, and 40 more"
	want := []string{keyDB + fmt.Sprintf(cause, "wbps"), keyEach + fmt.Sprintf(cause, "rbps")} // the list is full for the second
	if diff := cmp.Diff(want, got); diff != "" || err == nil {
		t.Errorf("%v, -want +got:\n%s", err, diff)
	}

	// "rootfs" of many containers is one thing, also once the list is full.
	cs := make([]Container, 30)
	for i := range cs {
		cs[i] = Container{Name: fmt.Sprint("c", i), Rootfs: tmpfs(), Mounts: c.Mounts}
	}
	d, err = Default().of(annotation.Parse(map[string]string{keyTotal: "* wbps=1Mi; rootfs wbps=1Mi"})).Total(cs)
	if len(d.Skipped) != 16 || d.SkippedMore != 41-16 || err == nil || !strings.Contains(err.Error(), "rootfs: tmpfs is memory, not a disk, and 40 more") {
		t.Errorf("%d and %d more: %v", len(d.Skipped), d.SkippedMore, err)
	}
	// One entry is one error, for any number of containers.
	if len(d.Errors) != 2 || !strings.Contains(d.Errors[1].Cause, `rootfs of container "c0" cannot be limited`) {
		t.Errorf("got %v", d.Errors)
	}
}

func TestReasonIsBounded(t *testing.T) {
	c := Container{Name: "db", Rootfs: blkio.Backing{Reason: strings.Repeat("ü", 5000)}}
	d, _ := Default().of(annotation.Parse(map[string]string{keyDB: "* wbps=1Mi"})).Container(c)
	if len(d.Skipped) != 1 || len(d.Skipped[0].Reason) > 256 {
		t.Errorf("got %+v", d.Skipped)
	}
}

func TestWarningsAreBounded(t *testing.T) {
	vfat := on(sdb)
	vfat.Warning = &blkio.Warning{Text: "half of it"}
	c := Container{Name: "db", Rootfs: on(sda), MemoryLimited: true}
	for i := range 40 {
		c.Mounts = append(c.Mounts, mount(fmt.Sprintf("/m%02d", 39-i), vfat))
	}
	d, err := Default().of(annotation.Parse(map[string]string{keyDB: "* wbps=1Mi", keyEach: "* rbps=1Mi"})).Container(c)
	if n := len(d.Warnings); err != nil || n != 17 || !slices.IsSorted(d.Warnings[:16]) || d.Warnings[16] != "and 24 more" {
		t.Errorf("%v, %q", err, d.Warnings)
	}
}

func TestUnmatchedIsBounded(t *testing.T) {
	annotations := map[string]string{keyEach: "/logs wbps=1Mi;" + paths(20, "wbps=1Mi"), keyTotal: "* wbps=1Mi; /nope wbps=1Mi"}
	for i := range 10 {
		annotations[containerKey(i)] = "rootfs wbps=1Mi"
	}
	r := annotation.Parse(annotations)
	cs := []Container{{Name: "c00", Mounts: []Mount{mount("/logs", on(sda))}}}
	got := Default().of(r).Unmatched(cs)
	if len(got) != 17 || got[16] != "and 14 more" {
		t.Errorf("%d lines: %q", len(got), got)
	}
	for _, line := range got {
		checkLine(t, line)
	}
}

func TestDropWeight(t *testing.T) {
	limit := wbps(sda, 5)
	d := Desired{Settings: NewSettings(limit, Setting{Value: weight(500).Value, Source: from("weight.blkio.noderesource.dev/containers", 0, "")})}
	err := d.dropFile(blkio.IOWeight)
	const want = `nri-blkio: weight.blkio.noderesource.dev/containers: "500": this node's kernel has no io.weight (use limits, a node whose kernel has CONFIG_BLK_CGROUP_IOCOST, or weights: bfq in the node policy)`
	if e := asError(t, err); e == nil || e.Error() != want || e.Kind() != annotation.Unenforceable {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	if again := d.dropFile(blkio.IOWeight); again != nil || !slices.Equal(d.Settings, Settings{limit}) {
		t.Errorf("left are %v, %v", d.Settings, again)
	}
}

// BenchmarkHostile decides for the worst pod of a tenant: as many mistakes as fit, and as many nearly equal
// mounts as possible.
func BenchmarkHostile(b *testing.B) {
	c := Container{Name: "db", Rootfs: on(sda)}
	like := strings.Repeat("/a", 50)
	for i := range 1000 {
		c.Mounts = append(c.Mounts, mount(fmt.Sprintf("%s/%04d", like, i), tmpfs()))
	}
	var wrong strings.Builder
	for i := range 255 {
		fmt.Fprintf(&wrong, "%s/x%03d wbps=1Mi;", like, i)
	}
	huge := map[string]string{
		keyDB:   "/" + strings.Repeat("a/", 32<<10-20) + " wbps=1Mi",
		keyEach: `"/` + strings.Repeat(`\"`, 32<<10-20) + `" wbps=1Mi`, keyTotal: strings.Repeat(" ;\t;\n", 13<<10) + "*",
	}
	b.Run("Container/huge", func(b *testing.B) {
		b.ReportAllocs()
		r := annotation.Parse(huge)
		for b.Loop() {
			if _, err := Default().of(r).Container(c); err == nil {
				b.Fatal("no error")
			}
		}
	})
	star := wrong.String() + "* wbps=1Mi"
	r := annotation.Parse(map[string]string{keyDB: star, keyEach: star, keyTotal: star})
	b.Run("Container", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if d, err := Default().of(r).Container(c); err == nil || len(d.Errors) < 255 {
				b.Fatal(err, len(d.Errors))
			}
		}
	})
	cs := slices.Repeat([]Container{c}, 20)
	b.Run("PodTotal/20", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if d, err := Default().of(r).Total(cs); err != nil || d.SkippedMore == 0 {
				b.Fatal(err, d.SkippedMore)
			}
		}
	})
	b.Run("Unmatched/20", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if len(Default().of(r).Unmatched(cs)) != 17 {
				b.Fatal("not bounded")
			}
		}
	})
}
