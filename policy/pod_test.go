package policy

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// pod has three containers. These are db, a web server that shares /logs and has nothing else, and a container
// without volumes on another root filesystem.
func pod() []Container {
	return []Container{
		db(),
		{Name: "web", Rootfs: on(sda), Mounts: []Mount{mount("/logs", on(sdb)), mount("/data", tmpfs())}},
		{Name: "aux", Rootfs: on(sdc)},
	}
}

func TestPodTotal(t *testing.T) {
	tests := []struct {
		value string
		n     int // of the pod's containers
		want  []string
		err   string
	}{
		{"/logs wbps=1Mi", 3, []string{"sdb wbps=1048576"}, ""},
		{"/nope wbps=1Mi", 3, nil, ""},
		{"/data wbps=1Mi", 1, []string{"sdb wbps=1048576"}, ""},
		{"/data wbps=1Mi", 0, nil, ""},
		{"* wbps=1Mi", 0, nil, ""},
		{"rootfs wbps=1Mi", 2, []string{"sda wbps=1048576"}, ""},
		{"rootfs wbps=1Mi", 3, []string{"sda wbps=1048576", "sdc wbps=1048576"}, ""},
		{"* wbps=1Mi; rootfs wbps=2Mi; /data/wal wbps=3Mi", 3, []string{"sda wbps=2097152", "sdb wbps=1048576", "sdc wbps=3145728"}, `entry 3 "/data/wal wbps=3Mi": "/data/wal" of container "web" cannot be limited: tmpfs is memory, not a disk (remove the entry, or use a volume on a local disk)`},
		{"/data/wal wbps=2Mi; /logs wbps=3Mi; rootfs wbps=1Mi", 1, []string{"sda wbps=1048576", "sdb wbps=3145728", "sdc wbps=2097152"}, ""},
		{"/data wbps=2Mi; /logs wbps=3Mi", 1, []string{"sdb wbps=2097152"}, `entry 2 "/logs wbps=3Mi": conflicting wbps on disk sdb 8:16: "/logs" has 3Mi, "/data" in entry 1 has 2Mi (write one value for both)`},
		{"/data wbps=1", 3, nil, `entry 1 "/data wbps=1": wbps=1 is under this node's floor (write at least 64Ki)`},
		{"/data wbps=x", 3, nil, `entry 1 "/data wbps=x": invalid number "x" (write a whole number such as 50Mi)`},
	}
	for _, tt := range tests {
		r := annotation.Parse(map[string]string{keyTotal: tt.value, keyEach: "bad"})
		cs := pod()[:tt.n]
		// The order in which containers came makes no difference.
		for range 6 {
			rand.Shuffle(len(cs), func(i, j int) { cs[i], cs[j] = cs[j], cs[i] })
			d, err := Default().of(r).Total(cs)
			if tt.err == "" && err != nil || tt.err != "" && (err == nil || err.Error() != "nri-blkio: "+keyTotal+": "+tt.err) {
				t.Errorf("%s:\n got %v\nwant %s", tt.value, err, tt.err)
			}
			if diff := cmp.Diff(tt.want, limits(d)); diff != "" {
				t.Errorf("%s: -want +got:\n%s", tt.value, diff)
			}
		}
	}
	// A mistake in it fails each container of the pod.
	for _, v := range []string{"x", "/data wbps=1"} {
		r := annotation.Parse(map[string]string{keyTotal: v})
		_, want := Default().of(r).Total(pod())
		for _, c := range pod() {
			if _, err := Default().of(r).Container(c); err == nil || err.Error() != want.Error() {
				t.Errorf("%s: container %s: %v, want %v", v, c.Name, err, want)
			}
		}
	}
	if d, err := Default().of(annotation.Parse(map[string]string{keyEach: "bad"})).Total(pod()); err != nil || len(d.Errors) > 0 {
		t.Errorf("of a pod without pod-total: %v", err)
	}
}

// TestPodTotalKeepsItsArgument verifies that the order of the list that the caller passes stays the same.
func TestPodTotalKeepsItsArgument(t *testing.T) {
	cs := pod()
	if _, err := Default().of(annotation.Parse(map[string]string{keyTotal: "* wbps=1Mi"})).Total(cs); err != nil {
		t.Fatal(err)
	}
	if cs[0].Name != "db" || cs[2].Name != "aux" {
		t.Errorf("reordered: %s, %s, %s", cs[0].Name, cs[1].Name, cs[2].Name)
	}
}

func TestUnmatched(t *testing.T) {
	r := annotation.Parse(map[string]string{
		keyDB: "/never wbps=1Mi", // an error when db is created, no warning
		"limits.blkio.noderesource.dev/container.wbe":  "bad",
		"weight.blkio.noderesource.dev/container.zzzz": "5",
		keyEach:  "/logs wbps=1Mi; /nope/x wbps=1Mi; * rbps=1Mi; rootfs wbps=1Mi",
		keyTotal: "/data/wal wbps=1Mi\n\"/no\\\"pe ü\" wbps=1Mi",
	})
	want := []string{
		`container.wbe: the pod has no container "wbe" (did you mean "web"?)`,
		`container.zzzz: the pod has no container "zzzz"`,
		keyEach + `: entry 2: no container of the pod has a mount at "/nope/x"`,
		keyTotal + `: entry 2: no container of the pod has a mount at "/no\"pe \u00fc"`,
	}
	if diff := cmp.Diff(want, Default().of(r).Unmatched(pod())); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if diff := cmp.Diff([]string{"db", "wbe", "zzzz"}, r.ContainerNames()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	none := new(annotation.Request)
	if !none.Empty() || Default().of(none).Unmatched(pod()) != nil || none.ContainerNames() != nil || Default().of(none).Check() != nil {
		t.Error("no request is not empty")
	}
}

func TestCheck(t *testing.T) {
	r := annotation.Parse(map[string]string{
		keyTotal: "x", keyEach: "/a wbps=1; /b wbps=y", keyDB: "",
		"limits.blkio.noderesource.dev/container.aux": "z", "blkio.noderesource.dev": "", "limits.blkio.noderesource.dev/pod": "",
	})
	want := []string{
		"blkio.noderesource.dev 0", "limits.blkio.noderesource.dev/pod 0", "limits.blkio.noderesource.dev/container.aux 1",
		keyDB + " 0", keyEach + " 2", keyEach + " 1", keyTotal + " 1",
	}
	var got []string
	for _, e := range Default().of(r).Check() {
		got = append(got, e.From.Annotation+" "+strconv.Itoa(e.Entry))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestDeterminism verifies that the same request must give the same bytes on each retry, however its map and
// its containers are ordered.
func TestDeterminism(t *testing.T) {
	annotations := map[string]string{
		keyDB: "/data wpbs=1; /logs x; /nope wbps=1Mi", keyEach: "/data wbps=1Mi; /logs wbps=2Mi; /scratch wbps=1Mi",
		keyTotal: "* wbps=5Mi; /data rbps=1Mi; /logs rbps=2Mi", "weight.blkio.noderesource.dev/containers": "x",
	}
	for i := range 20 {
		annotations["limits.blkio.noderesource.dev/scope"+strconv.Itoa(i)] = "* wbps=1Mi"
		annotations["limits.blkio.noderesource.dev/container.c"+strconv.Itoa(i)] = "bad"
	}
	var first string
	for i := range 100 {
		shuffled := map[string]string{}
		keys := slices.Collect(maps.Keys(annotations))
		rand.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
		for _, k := range keys {
			shuffled[k] = annotations[k]
		}
		r, cs := annotation.Parse(shuffled), pod()
		rand.Shuffle(len(cs), func(i, j int) { cs[i], cs[j] = cs[j], cs[i] })
		d, err := Default().of(r).Container(db())
		total, totalErr := Default().of(r).Total(cs)
		lines := []string{err.Error(), totalErr.Error(), strings.Join(Default().of(r).Unmatched(cs), "\n")}
		for _, e := range slices.Concat(d.Errors, total.Errors, Default().of(r).Check()) {
			checkLine(t, e.Error())
			lines = append(lines, e.Error())
		}
		lines = append(lines, limits(d)...)
		lines = append(lines, limits(total)...)
		got := strings.Join(lines, "\n")
		if i == 0 {
			first = got
		}
		if got != first {
			t.Fatalf("run %d: %s", i, cmp.Diff(first, got))
		}
	}
}

// TestRefusal verifies that an error about a pod names what has a limit for it.
func TestRefusal(t *testing.T) {
	p := budgeted(t)
	request := annotation.Parse(map[string]string{keyDB: "rootfs wbps=1Mi"})
	none := annotation.Parse(nil)
	for want, pod := range map[string]*Pod{
		keyDB:            p.ForPod(&PodFacts{Namespace: "tenant-classed"}, request),
		`"rule classed"`: p.ForPod(&PodFacts{Namespace: "tenant-classed"}, none),
		"budgets":        p.ForPod(&PodFacts{Namespace: "other"}, none),
		"pod":            p.ForPod(&PodFacts{Namespace: "web"}, none),
	} {
		err := pod.Refusal(annotation.TooManyMounts, &annotation.Problem{Cause: "too many", Hint: "fewer"})
		if got := err.Error(); got != "nri-blkio: "+want+": too many (fewer)" || err.Kind() != annotation.Invalid {
			t.Errorf("%s: %q", want, got)
		}
	}
}
