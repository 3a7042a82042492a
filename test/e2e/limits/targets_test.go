package limits

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nri-blkio/nri-blkio/test/e2e/cgroup"
	"github.com/nri-blkio/nri-blkio/test/e2e/cri"
	"github.com/nri-blkio/nri-blkio/test/e2e/lab"
)

// targetCase is a container with an annotation of its own, and what the kernel
// has of it as StartContainer returns: nothing waits for the reconciler.
type targetCase struct {
	name, value string
	mounts      []cri.Mount
	want        lab.Disks
}

// testTargets makes one pod of all cases: a container is made in half the time
// that a pod takes.
func testTargets(t *testing.T) {
	prepareSources(t)
	cases := targetCases()
	a := lab.Annotations{}
	for _, c := range cases {
		a[lab.Limits+"container."+c.name] = c.value
	}
	pod := lab.RunPod(t, "pod", a)
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			pod := pod.By(t)
			k := pod.MustRun(cri.ContainerConfig{Name: c.name, Mounts: c.mounts})
			lab.WantIOMax(t, k.Cgroup, c.want)
		})
	}
}

// prepareSources makes the host sides that are more than a directory.
func prepareSources(t *testing.T) {
	t.Helper()
	for link, to := range map[string]string{
		filepath.Join(lab.Volumes["root"], "link"):      lab.Volumes["ext4"],
		filepath.Join(lab.Volumes["ext4"], "leads-out"): lab.Volumes["xfs"],
	} {
		os.Remove(link) // of a run that was interrupted
		if err := os.Symlink(to, link); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.Remove(link) })
	}
	file := filepath.Join(lab.Volumes["xfs"], "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(file) })
}

// targetCases are different ways to name a target. A proof also has those that TestStorage and TestKubelet have as well, or
// unit tests as grammar.
func targetCases() []targetCase {
	on := func(mounts ...string) []cri.Mount { return lab.Sleeper("", mounts...).Mounts }
	readOnly := on("/data", "ext4", "/ro", "xfs")
	readOnly[1].ReadOnly = true
	cases := []targetCase{
		{"all-keys", "/data rbps=4Mi wbps=1Mi riops=200 wiops=1k", on("/data", "ext4"), lab.Disks{"vdb": "rbps=4194304 wbps=1048576 riops=200 wiops=1000"}},
		{"quoted", `"/with blank; and \"more" wbps=1Mi`, on(`/with blank; and "more`, "ext4"), lab.Disks{"vdb": "wbps=1048576"}},
		{"longest-mount", "/data/inner/x wbps=1Mi", on("/data", "ext4", "/data/inner", "xfs"), lab.Disks{"vdd": "wbps=1048576"}},
		{"rootfs", "rootfs wbps=1Mi riops=100", nil, lab.Disks{"vda": "wbps=1048576 riops=100"}},
		{"star", "* wbps=1500k", on("/a", "ext4", "/b", "part", "/c", "xfs", "/d", "btrfs"), lab.Disks{
			"vda": "wbps=1500000", "vdb": "wbps=1500000", "vdc": "wbps=1500000", "vdd": "wbps=1500000", "vde": "wbps=1500000",
		}},
		{"star-read-only", "* rbps=2Mi wbps=1Mi", readOnly, lab.Disks{
			"vda": "rbps=2097152 wbps=1048576", "vdb": "rbps=2097152 wbps=1048576", "vdd": "rbps=2097152",
		}},
		{
			"one-disk", "* rbps=3Mi wbps=3Mi riops=300\nrootfs rbps=2Mi wbps=2Mi\n/host wbps=1Mi",
			on("/host", "root", "/data", "ext4"),
			lab.Disks{"vda": "rbps=2097152 wbps=1048576 riops=300", "vdb": "rbps=3145728 wbps=3145728 riops=300"},
		},
		// Links in a volume are not followed: a writer of the volume could lead one to any disk of the node.
		{"link-in-a-volume", "/data/leads-out wbps=1Mi; /data/leads-out/x riops=100", on("/data", "ext4"), lab.Disks{"vdb": "wbps=1048576 riops=100"}},
		{"link-to-another-mount", "/data/leads-out wbps=1Mi", on("/data", "ext4", lab.Volumes["xfs"], "xfs"), lab.Disks{"vdb": "wbps=1048576"}},
	}
	if !*lab.Proof {
		return cases
	}
	return append(cases, []targetCase{
		{"partition", "/data wbps=1Mi", on("/data", "part"), lab.Disks{"vdc": "wbps=1048576"}}, // the whole disk
		{"xfs", "/data wbps=1Mi", on("/data", "xfs"), lab.Disks{"vdd": "wbps=1048576"}},
		{"btrfs", "/data wbps=1Mi", on("/data", "btrfs"), lab.Disks{"vde": "wbps=1048576"}},
		{"below-a-mount", "/data/sub/file wbps=1Mi", on("/data", "ext4"), lab.Disks{"vdb": "wbps=1048576"}},
		// The runtime binds recursively, so the other disk is in the volume.
		{"mount-below-a-volume", "/host/ext4/e2e wbps=1Mi", []cri.Mount{{Path: "/host", Host: "/mnt"}}, lab.Disks{"vdb": "wbps=1048576"}},
		{"star-without-tmpfs", "* wbps=1Mi", on("/mem", "tmpfs"), lab.Disks{"vda": "wbps=1048576"}},
		{
			"separators", "# both disks; not one\n/data wbps=1Mi;;\n ; rootfs wbps=2Mi ;\n",
			on("/data", "ext4"),
			lab.Disks{"vda": "wbps=2097152", "vdb": "wbps=1048576"},
		},
		{"same-value-twice", "/a wbps=1Mi; /b wbps=1024Ki", on("/a", "ext4", "/b", "ext4"), lab.Disks{"vdb": "wbps=1048576"}},
		{"symbolic-link", "/data wbps=1Mi", []cri.Mount{{Path: "/data", Host: lab.Volumes["root"] + "/link"}}, lab.Disks{"vdb": "wbps=1048576"}},
		{"file", "/etc/data.conf wbps=1Mi", []cri.Mount{{Path: "/etc/data.conf", Host: lab.Volumes["xfs"] + "/file"}}, lab.Disks{"vdd": "wbps=1048576"}},
	}...)
}

// scopeCase is a pod and what the kernel has of it once it runs.
type scopeCase struct {
	name        string
	annotations lab.Annotations
	containers  []cri.ContainerConfig
	want        map[string]lab.Disks // by container
	wantPod     lab.Disks            // pod-total or backstop
}

func testScopes(t *testing.T) {
	for _, c := range scopeCases() {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			pod := lab.RunPod(t, "pod", c.annotations)
			for _, cfg := range c.containers {
				k := pod.MustRun(cfg)
				lab.WantIOMax(t, k.Cgroup, c.want[cfg.Name])
			}
			lab.WantIOMax(t, pod.Cgroup, c.wantPod)
		})
	}
}

func scopeCases() []scopeCase {
	both := []cri.ContainerConfig{lab.Sleeper("a", "/data", "ext4"), lab.Sleeper("b", "/data", "ext4")}
	cases := []scopeCase{{
		name: "max of container lifts the pod's default",
		annotations: lab.Annotations{
			lab.Limits + "container.c": "/data wbps=max rbps=1Mi",
			lab.Limits + "containers":  "* wbps=1Mi",
		},
		containers: []cri.ContainerConfig{lab.Sleeper("c", "/data", "ext4")},
		want:       map[string]lab.Disks{"c": {"vda": "wbps=1048576", "vdb": "rbps=1048576"}},
		wantPod:    lab.Disks{"vda": "wbps=1048576", "vdb": "rbps=1048576"},
	}, {
		name: "container beats containers key by key",
		annotations: lab.Annotations{
			lab.Limits + "container.a": "/data wbps=1Mi",
			lab.Limits + "containers":  "/data wbps=2Mi rbps=3Mi",
		},
		containers: both,
		want:       map[string]lab.Disks{"a": {"vdb": "rbps=3145728 wbps=1048576"}, "b": {"vdb": "rbps=3145728 wbps=2097152"}},
		wantPod:    lab.Disks{"vdb": "rbps=6291456 wbps=3145728"},
	}, {
		name:        "containers skips one without the mount",
		annotations: lab.Annotations{lab.Limits + "containers": "/data wbps=1Mi"},
		containers:  []cri.ContainerConfig{lab.Sleeper("a", "/data", "ext4"), lab.Sleeper("b")},
		want:        map[string]lab.Disks{"a": {"vdb": "wbps=1048576"}},
	}, {
		name:        "pod-total alone",
		annotations: lab.Annotations{lab.Limits + "pod-total": "/data wbps=3Mi"},
		containers:  both,
		wantPod:     lab.Disks{"vdb": "wbps=3145728"},
	}, {
		name: "pod-total over the sum",
		annotations: lab.Annotations{
			lab.Limits + "pod-total":  "/data wbps=8Mi",
			lab.Limits + "containers": "/data wbps=2Mi",
		},
		containers: both,
		want:       map[string]lab.Disks{"a": {"vdb": "wbps=2097152"}, "b": {"vdb": "wbps=2097152"}},
		wantPod:    lab.Disks{"vdb": "wbps=4194304"},
	}}
	if *lab.Proof { // TestKubelet has it
		cases = append(cases, scopeCase{
			name: "pod-total under the sum",
			annotations: lab.Annotations{
				lab.Limits + "pod-total":  "/data wbps=3Mi",
				lab.Limits + "containers": "/data wbps=2Mi",
			},
			containers: both,
			want:       map[string]lab.Disks{"a": {"vdb": "wbps=2097152"}, "b": {"vdb": "wbps=2097152"}},
			wantPod:    lab.Disks{"vdb": "wbps=3145728"},
		})
	}
	return cases
}

func TestWeight(t *testing.T) {
	lab.StartPlugin(t, "--policy", lab.PolicyFile(t, "bounds: {weight: {max: 10000}}\n"))
	pod := lab.RunPod(t, "pod", lab.Annotations{
		lab.Weight + "container.a": "500",
		lab.Weight + "containers":  "50",
		lab.Weight + "pod-total":   "10000",
		lab.Limits + "container.a": "/data wbps=1Mi",
	})
	for name, want := range map[string]int{"a": 500, "b": 50} {
		k := pod.MustRun(lab.Sleeper(name, "/data", "ext4"))
		got, err := cgroup.Dir(k.Cgroup).Weight()
		if err != nil || got != want {
			t.Errorf("io.weight of container %s is %d (%v), want %d", name, got, err, want)
		}
	}
	if got, err := cgroup.Dir(pod.Cgroup).Weight(); err != nil || got != 10000 {
		t.Errorf("io.weight of the pod is %d (%v), want 10000", got, err)
	}
}

// testUntouched verifies that a pod without the plugin's annotations gets no limit, no weight and no record.
func testUntouched(t *testing.T) {
	pod := lab.RunPod(t, "pod", lab.Annotations{"example.org/limits": "/data wbps=1Mi"})
	k := pod.MustRun(lab.Sleeper("c", "/data", "ext4"))
	lab.StaysIOMax(t, k.Cgroup, nil)
	for _, dir := range []string{k.Cgroup, pod.Cgroup} {
		lab.WantIOMax(t, dir, nil)
		if record, err := cgroup.Dir(dir).Record(); err != nil || record != "" {
			t.Errorf("record on %s: %q (%v), want none", dir, record, err)
		}
	}
}

// testLargeAnnotation verifies that the limits of an annotation that is too large for the extended attribute of
// a cgroup are written, also on the disk that is not in the OCI spec.
func testLargeAnnotation(t *testing.T) {
	value := "rootfs wbps=1Mi; /data wbps=1Mi"
	for i := range 250 {
		value += fmt.Sprintf("\n/%s%03d wbps=1Mi", strings.Repeat("<", 60), i)
	}
	pod := lab.RunPod(t, "pod", lab.Annotations{lab.Limits + "containers": value, lab.Limits + "pod-total": value})
	both := lab.Disks{"vda": "wbps=1048576", "vdb": "wbps=1048576"}
	lab.WantIOMax(t, pod.MustRun(lab.Sleeper("a", "/data", "ext4")).Cgroup, both)
	lab.WantIOMax(t, pod.MustRun(lab.Sleeper("b", "/data", "ext4")).Cgroup, both)
	// The reconciler still works.
	if err := cgroup.Dir(pod.Cgroup).SetIOMax(lab.Node.Disks["vdb"] + " wbps=max"); err != nil {
		t.Fatal(err)
	}
	lab.AwaitIOMax(t, pod.Cgroup, both)
}
