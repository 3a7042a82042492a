package check

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/manifest"
	"github.com/nri-blkio/nri-blkio/policy"
)

// TestInjectedMounts verifies that the mounts that the runtime and the kubelet add to each container are on
// their own disks. A path selects them, and "*" does not.
func TestInjectedMounts(t *testing.T) {
	const token = "/var/run/secrets/kubernetes.io/serviceaccount"
	want := map[string]string{
		"/etc/hosts": "/kubelet/pods", "/dev/termination-log": "/kubelet/pods", "/etc/hostname": "/var/lib/containerd", "/etc/resolv.conf": "/var/lib/containerd",
		"/dev/shm": "tmpfs is memory, not a disk", token: "tmpfs is memory, not a disk", "/proc": "proc is not stored on a disk", "/sys": "sysfs is not stored on a disk",
	}
	pod := &manifest.Pod{Containers: []manifest.Container{{Name: "c"}}}
	var entries []string
	for path := range want {
		entries = append(entries, path+" rbps=1Mi")
	}
	got := map[string]string{}
	for _, m := range findIn(t, pod, strings.Join(entries, ";"))[0].Mounts {
		if !m.Injected {
			t.Errorf("%s is not injected", m.Destination)
		}
		got[m.Destination] = strings.Join(append(blkio.DiskNames(m.Backing.Disks), m.Backing.Reason), "")
	}
	maps.DeleteFunc(got, func(path, _ string) bool { return want[path] == "" })
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	for _, m := range findIn(t, pod, "* rbps=1Mi")[0].Mounts {
		if len(m.Backing.Disks) > 0 {
			t.Errorf("* selects %s", m.Destination)
		}
	}
}

// TestWrites covers the fields of a write. Those of a weight have no disk, and a disk that is unknown
// has no number.
func TestWrites(t *testing.T) {
	c := testChecker()
	m := podOf(map[string]string{limitsOf + "container.a": "/claim rbps=1Mi; rootfs rbps=2Mi", weightOf + "container.a": "50"}, "a")
	m.Containers[0].Mounts = []manifest.Mount{{Volume: "v", Path: "/claim"}}
	m.Volumes = []manifest.Volume{{Name: "v", Source: manifest.PersistentVolumeClaim, Claim: "c"}}
	c.Policy.Writeback.Backstop = false
	r := c.Pod(t.Context(), m)
	source := func(name string, entry int, target string) []policy.Source {
		return []policy.Source{{Kind: policy.FromAnnotation, Name: name, Entry: entry, Target: target}}
	}
	want := []Write{
		{Container: "a", Disk: "sda", Dev: "8:0", File: blkio.IOMax, Line: "8:0 rbps=2097152", Limit: "rbps=2Mi", Sources: source(limitsOf+"container.a", 2, "rootfs")},
		{Container: "a", Disk: "disk of claim c", File: blkio.IOMax, Line: "MAJ:MIN rbps=1048576", Limit: "rbps=1Mi", Sources: source(limitsOf+"container.a", 1, "/claim")},
		{Container: "a", File: blkio.IOWeight, Line: "50", Limit: "weight 50", Sources: source(weightOf+"container.a", 0, "")},
	}
	if d := cmp.Diff(want, r.Writes); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

// TestTotalFails verifies that an error of pod-total is one of the pod, once, whether its containers are
// created or not.
func TestTotalFails(t *testing.T) {
	const problem = `nri-blkio: limits.blkio.noderesource.dev/pod-total: entry 1 "rootfs wbps=1": wbps=1 is under this node's floor (write at least 64Ki)`
	for _, action := range []policy.Action{policy.Reject, policy.Ignore} {
		c := testChecker()
		c.Policy.OnError.Invalid = action
		r := c.Pod(t.Context(), podOf(map[string]string{limitsOf + "pod-total": "rootfs wbps=1; * rbps=1Mi", limitsOf + "container.a": "rootfs rbps=2Mi"}, "a", "b"))
		if d := cmp.Diff([]string{problem}, r.Errors); d != "" {
			t.Errorf("%s: -want +got:\n%s", action, d)
		}
		if created := slices.Contains(lines(r), "container a io.max 8:0 rbps=2097152"); created != (action == policy.Ignore) {
			t.Errorf("%s: %q, %q", action, lines(r), r.Effects)
		}
	}
}
