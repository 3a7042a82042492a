package limits

import (
	"slices"
	"strings"
	"testing"

	"github.com/nri-blkio/nri-blkio/test/e2e/lab"
)

// refusal is a value of a container's own annotation and what is said of it.
type refusal struct {
	name, value, want string // want: after the annotation's key
}

// refusals has errors of each layer that finds some: the grammar, the node policy, the mounts and the disks. The containers
// have /data on ext4, /mem on tmpfs and /data/too on the same disk as /data.
var refusals = []refusal{
	{"no-value", "", `the value is empty (write for example "/data wbps=50Mi", or remove the annotation)`},
	{"unknown-key", "/data wpbs=50Mi", `entry 1 "/data wpbs=50Mi": unknown key "wpbs" (did you mean "wbps"?)`},
	// No kubelet made the mounts of these containers, and no cluster part runs.
	{"volume", "@data wbps=1Mi", `entry 1 "@data wbps=1Mi": the volumes of the pod are not known yet (the cluster part of nri-blkio reports them; on a node without it, write the path of the mount)`},
	{"under-floor", "/data wbps=1Ki", `entry 1 "/data wbps=1Ki": wbps=1Ki is under this node's floor (write at least 64Ki)`},
	{"conflict", "/data wbps=1Mi; /data/too wbps=2Mi", `entry 2 "/data/too wbps=2Mi": conflicting wbps on disk vdb VDB: "/data/too" has 2Mi, "/data" in entry 1 has 1Mi (write one value for both)`},
	{"no-mount", "/dat wbps=1Mi", `entry 1 "/dat wbps=1Mi": "/dat" is on no mount of the container (did you mean "/data"?)`},
	{
		"no-mount-among-others", "/data wbps=1Mi; rootfs riops=100; /srv/app wbps=1Mi",
		`entry 3 "/srv/app wbps=1Mi": "/srv/app" is on no mount of the container (write rootfs for the container's own filesystem)`,
	},
	{"root", "/ wbps=1Mi", `entry 1 "/ wbps=1Mi": "/" is the root filesystem of the container (write rootfs)`},
	{"tmpfs", "/mem wbps=1Mi", `entry 1 "/mem wbps=1Mi": "/mem" cannot be limited: tmpfs is memory, not a disk (remove the entry, or use a volume on a local disk)`},
	{"ansi", "/data \x1b[31mwbps=1Mi\x1b[0m", `entry 1 "/data \x1b[31mwbps=1Mi\x1b[0m": control character in the entry (remove it)`},
	{"huge", "/data wbps=" + strings.Repeat("9", 70<<10), `the value is longer than 64 KiB (name fewer targets, or use *)`},
	{
		"long-text", "/data " + strings.Repeat("wbps=1Mi ", 500),
		`entry 1 "/data` + strings.Repeat(" wbps=1Mi", 31) + ` wb"...: duplicate key "wbps" (write it once)`,
	},
}

// furtherRefusals complete them to each class of error that one entry can have, for a proof: unit tests have them as well.
var furtherRefusals = []refusal{
	{"no-entry", "# nothing\n;;", `the value is empty (write for example "/data wbps=50Mi", or remove the annotation)`},
	{"no-key", "/data rbps=1Mi; /data/too", `entry 2 "/data/too": no limit after the target (write for example "/data/too wbps=50Mi")`},
	{"key-without-value", "/data wbps", `entry 1 "/data wbps": key "wbps" has no value (write for example wbps=50Mi)`},
	{"no-target", "wbps=1Mi", `entry 1 "wbps=1Mi": no target before "wbps=1Mi" (write "/path", @VOLUME, rootfs or * first)`},
	{"relative-path", "data/x wbps=1Mi", `entry 1 "data/x wbps=1Mi": path "data/x" is not absolute (write a path in the container that starts with /)`},
	{"two-targets", "/data rootfs wbps=1Mi", `entry 1 "/data rootfs wbps=1Mi": "rootfs" is not key=value (write for example wbps=50Mi, without blanks in it)`},
	{"open-quote", `"/data wbps=1Mi`, `entry 1 "\"/data wbps=1Mi": unterminated quote (write \" for a quote inside a quoted path)`},
	{"dots", "/data/../etc wbps=1Mi", `entry 1 "/data/../etc wbps=1Mi": path "/data/../etc" contains ".." (write the path without it)`},
	{"volume-name", "@Data_1 wbps=1Mi", `entry 1 "@Data_1 wbps=1Mi": invalid volume name "Data_1" (use at most 63 of a-z, 0-9 and -, not starting or ending with -)`},
	{"unit", "/data wbps=50MB", `entry 1 "/data wbps=50MB": invalid quantity "50MB" (write 50M or 50Mi)`},
	{"capital-k", "/data wiops=10K", `entry 1 "/data wiops=10K": invalid quantity "10K" (write 10k)`},
	{"fraction", "/data wbps=100000.5", `entry 1 "/data wbps=100000.5": "100000.5" is not a whole number (write a whole number such as 50Mi)`},
	{"milli", "/data wbps=50m", `entry 1 "/data wbps=50m": "50m" is a fraction: m is Kubernetes' suffix for thousandths (write 50M or 50Mi)`},
	{"negative", "/data wbps=-5Mi", `entry 1 "/data wbps=-5Mi": "-5Mi" is negative (write a whole number such as 50Mi, or max for no limit)`},
	{"zero", "/data wbps=0", `entry 1 "/data wbps=0": wbps=0 stops all I/O (write max for no limit)`},
	{"too-large", "/data wiops=5G", `entry 1 "/data wiops=5G": "5G" is too large (write at most 4294967294, or max for no limit)`},
	{"iops-under-floor", "/data riops=7", `entry 1 "/data riops=7": riops=7 is under this node's floor (write at least 8)`},
	{"key-twice", "/data wbps=1Mi wbps=2Mi", `entry 1 "/data wbps=1Mi wbps=2Mi": duplicate key "wbps" (write it once)`},
	{"target-twice", "/data wbps=1Mi; /data/ rbps=1Mi", `entry 2 "/data/ rbps=1Mi": duplicate target "/data/", first in entry 1 (write all its limits into one entry)`},
	{"proc", "/proc/sys wbps=1Mi", `entry 1 "/proc/sys wbps=1Mi": "/proc/sys" cannot be limited: proc is not stored on a disk (remove the entry, or use a volume on a local disk)`},
	{"right-to-left", "/data wbps=\u202e1Mi", `entry 1 "/data wbps=\u202e1Mi": invalid number "\u202e1Mi" (write a whole number such as 50Mi)`},
	{"many", strings.Repeat("/data/x wbps=1Mi;", 300), `entry 2 "/data/x wbps=1Mi": duplicate target "/data/x", first in entry 1 (write all its limits into one entry)`},
}

// testRefusals verifies that an error fails the container that it is about, and no other. All cases use one
// pod, which is fast and shows that the others run.
func testRefusals(t *testing.T) {
	refusals := refusals
	if *lab.Proof {
		refusals = append(slices.Clip(refusals), furtherRefusals...)
	}
	a := lab.Annotations{lab.Limits + "container.good": "/data wbps=1Mi", lab.Weight + "container.weight": "0"}
	for _, r := range refusals {
		a[lab.Limits+"container."+r.name] = r.value
	}
	pod := lab.RunPod(t, "pod", a)
	t.Run("each", func(t *testing.T) {
		for _, r := range refusals {
			t.Run(r.name, func(t *testing.T) {
				t.Parallel()
				want := strings.ReplaceAll(r.want, "VDB", lab.Node.Disks["vdb"])
				lab.WantRefusal(t, pod, r.name, lab.Limits+"container."+r.name, want)
			})
		}
		t.Run("weight", func(t *testing.T) {
			t.Parallel()
			lab.WantRefusal(t, pod, "weight", lab.Weight+"container.weight",
				`"0": invalid weight (write a whole number from 1 to 10000; the default is 100)`)
		})
	})
	t.Run("others start", func(t *testing.T) {
		k := pod.MustRun(lab.RefusedConfig("good"))
		lab.WantIOMax(t, k.Cgroup, lab.Disks{"vdb": "wbps=1048576"})
		// What was refused counts for nothing in the pod.
		lab.WantIOMax(t, pod.Cgroup, lab.Disks{"vdb": "wbps=1048576"})
	})
}

// podRefusal is an annotation that concerns each container of a pod, and what is said of it.
type podRefusal struct{ name, key, value, want string }

// testPodRefusals has such errors. A proof has all of them: unit tests have them as well.
func testPodRefusals(t *testing.T) {
	cases := []podRefusal{
		{"unknown scope", lab.Limits + "container", "/data wbps=1Mi", `unknown scope "container" (did you mean "containers"?)`},
		{"class", "class.blkio.noderesource.dev/containers", "bronze", `"bronze": unknown class (ask the operators of the cluster for the classes of their node policy)`},
		{"pod-total", lab.Limits + "pod-total", "/mem wbps=1Mi", `entry 1 "/mem wbps=1Mi": "/mem" of container "c" cannot be limited: tmpfs is memory, not a disk (remove the entry, or use a volume on a local disk)`},
	}
	if *lab.Proof {
		cases = append(cases, []podRefusal{
			{"no scope", lab.Limits, "/data wbps=1Mi", `no scope after the slash (write /containers for each container, /pod-total for the pod as a whole, or /container.NAME)`},
			{"pod", lab.Limits + "pod", "/data wbps=1Mi", `invalid scope "pod" (write /containers for each container, /pod-total for the pod as a whole, or /container.NAME)`},
			{"containers with a name", lab.Limits + "containers.c", "/data wbps=1Mi", `unknown scope "containers.c" (did you mean "container.c"?)`},
			{"unknown annotation", "limit.blkio.noderesource.dev/containers", "/data wbps=1Mi", `unknown annotation (did you mean "limits.blkio.noderesource.dev"?)`},
			{"containers", lab.Limits + "containers", "/data wbps=1", `entry 1 "/data wbps=1": wbps=1 is under this node's floor (write at least 64Ki)`},
		}...)
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			pod := lab.RunPod(t, "pod", lab.Annotations{c.key: c.value})
			lab.WantRefusal(t, pod, "c", c.key, c.want)
		})
	}
	t.Run("other pods start", func(t *testing.T) {
		t.Parallel()
		pod := lab.RunPod(t, "pod", lab.Annotations{lab.Limits + "containers": "/data wbps=1Mi"})
		lab.WantIOMax(t, pod.MustRun(lab.Sleeper("c", "/data", "ext4")).Cgroup, lab.Disks{"vdb": "wbps=1048576"})
	})
}

// testOtherContainersMount verifies that a container is rejected if its annotation names a mount that
// only another container of the pod has. None of its limits are written, and the other container,
// which runs, keeps its limits.
func testOtherContainersMount(t *testing.T) {
	pod := lab.RunPod(t, "pod", lab.Annotations{
		lab.Limits + "container.a": "/data wbps=1Mi; /other wbps=1Mi",
		lab.Limits + "container.b": "/data wbps=2Mi; /other wbps=2Mi",
	})
	b := pod.MustRun(lab.Sleeper("b", "/data", "ext4", "/other", "xfs"))
	lab.WantRefusal(t, pod, "a", lab.Limits+"container.a",
		`entry 2 "/other wbps=1Mi": "/other" is on no mount of the container (write rootfs for the container's own filesystem)`)
	want := lab.Disks{"vdb": "wbps=2097152", "vdd": "wbps=2097152"}
	lab.StaysIOMax(t, pod.Cgroup, want)
	lab.WantIOMax(t, b.Cgroup, want)
}
