package limits

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nri-blkio/nri-blkio/test/e2e/cgroup"
	"github.com/nri-blkio/nri-blkio/test/e2e/cri"
	"github.com/nri-blkio/nri-blkio/test/e2e/lab"
)

// feature is a file of the io controller, and what the program says on a kernel without it.
type feature struct {
	file    string
	kernel  string // the end of the name of the kernel that test/node compiles without it
	devices string // the reason in devices
	cause   string // why an annotation is unenforceable
	hint    string
}

var features = []feature{
	{
		"io.max", "-nothrottle", "the kernel has no io.max (CONFIG_BLK_DEV_THROTTLING)",
		"this node's kernel has no io.max (CONFIG_BLK_DEV_THROTTLING)", "use a node whose kernel has it",
	},
	{
		"io.weight", "-iolatency", "the kernel has no io.weight (CONFIG_BLK_CGROUP_IOCOST)",
		"this node's kernel has no io.weight", "use limits, a node whose kernel has CONFIG_BLK_CGROUP_IOCOST, or weights: bfq in the node policy",
	},
}

// featuresPolicy has a class for the pods of a namespace without annotations.
const featuresPolicy = `classes: {bronze: {limits: ["* wbps=10Mi"]}}
rules: [{name: batch, match: {namespaces: [batch]}, class: bronze}]
`

// TestKernelFeatures verifies that a limit, a class of a rule and a weight are in force if the kernel has io.max and io.weight. If it
// does not have one of them, an annotation that needs it is rejected, and classes are skipped. Reports name the option of the
// kernel, and other containers start.
//
//e2e:proof
func TestKernelFeatures(t *testing.T) {
	release, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		t.Fatal(err)
	}
	kernel := strings.TrimSpace(string(release))
	file := lab.PolicyFile(t, featuresPolicy)
	load := loadCase{"c", "rootfs wbps=1Mi", "", []string{"write", "--block", "64Ki", "--direct"}, "vda", "wbytes", lab.MiB}
	limited, weighted := lab.RunPod(t, "limited", lab.Annotations{lab.Limits + "containers": load.value}), lab.RunPod(t, "weighted", lab.Annotations{lab.Weight + "containers": "50"})
	classed := lab.RunPodOf(t, "classed", cri.PodConfig{Namespace: "batch"})
	has := hasFeatures(t, kernel, lab.RunPod(t, "probe", nil))
	p := lab.StartPlugin(t, "--policy", file, "--metrics-address", soakMetrics)

	free := classed.MustRun(lab.Sleeper("c"))
	switch max := features[0]; {
	case has[max.file]:
		lab.WantRate(t, limited.MustRun(load.config(t)).Cgroup, load.disk, load.counter, load.limit)
		lab.WantIOMax(t, free.Cgroup, lab.Disks{"vda": "wbps=10485760"})
	default:
		cause := `entry 1 "wbps=1Mi": ` + max.cause
		lab.WantRefusal(t, limited, "c", lab.Limits+"containers", cause+" ("+max.hint+")")
		skipped := "rule batch, class bronze: " + max.cause
		if r := readRecord(t, free.Cgroup); !slices.Contains(r.Warnings, skipped) {
			t.Errorf("the record of a container with a class is %+v, want the warning %q", r, skipped)
		}
		if n := p.Count("This node cannot limit"); n != 1 {
			t.Errorf("the log says %d times that the node cannot limit, want once", n)
		}
		awaitStatus(t, "limits: connected", "--ready", "limits")
		awaitStatus(t, max.cause, "--ready", "limits")
		awaitStatus(t, skipped, "-o", "wide")
		wantMetric(t, `nri_blkio_warnings{kind="class_not_enforced"}`, 1)
		wantMetric(t, `nri_blkio_refused_containers_total{kind="unenforceable"}`, 3)
	}
	switch weight := features[1]; {
	case has[weight.file]:
		if got, err := cgroup.Dir(weighted.MustRun(lab.Sleeper("c")).Cgroup).Weight(); err != nil || got != 50 {
			t.Errorf("the weight is %d (%v), want 50", got, err)
		}
	default:
		cause := `"50": ` + weight.cause
		lab.WantRefusal(t, weighted, "c", lab.Weight+"containers", cause+" ("+weight.hint+")")
		wantMetric(t, `nri_blkio_refused_containers_total{kind="unenforceable"}`, 3)
	}
	wantDevices(t, has)

	lab.WritePolicy(t, file, featuresPolicy+"onError: {unenforceable: ignore}\n")
	p.Await(t, lab.LogReloaded, 1)
	for i, pod := range []lab.PodOf{limited, weighted} {
		k, f := pod.MustRun(lab.Sleeper("ignored")), features[i]
		if has[f.file] {
			continue
		}
		if r := readRecord(t, k.Cgroup); !strings.Contains(r.Error, f.cause) || len(r.Settings) > 0 {
			t.Errorf("the record of a container that starts without what it asks for is %+v, want the error %q alone", r, f.cause)
		}
		awaitStatus(t, f.cause, "-o", "wide", "--pod", "default/"+pod.Name)
	}
	lab.RunPod(t, "plain", nil).MustRun(lab.Sleeper("c"))
	p.Signal(t, 0) // alive
}

// hasFeatures returns the files that a container's cgroup has, which have to be those of the kernel's name. On a kernel without io.max a
// runtime fails the start of a container that has a limit in its spec.
func hasFeatures(t *testing.T, kernel string, pod lab.PodOf) map[string]bool {
	t.Helper()
	k := pod.MustRun(lab.Sleeper("c"))
	exists := func(file string) bool {
		_, err := os.Stat(filepath.Join(cgroup.Root, k.Cgroup, file))
		return err == nil
	}
	has := map[string]bool{}
	for _, f := range features {
		has[f.file] = exists(f.file)
		if want := !strings.HasSuffix(kernel, f.kernel); has[f.file] != want {
			t.Errorf("kernel %s has %s: %v, want %v", kernel, f.file, has[f.file], want)
		}
	}
	if strings.HasSuffix(kernel, "-iolatency") && !exists("io.latency") {
		t.Errorf("kernel %s has no io.latency", kernel)
	}
	if !has["io.max"] {
		cfg := lab.Sleeper("spec")
		cfg.Unified = map[string]string{"io.max": lab.Node.Disks["vda"] + " wbps=1048576"}
		_, err := pod.Run(t.Context(), cfg)
		if err == nil || !strings.Contains(err.Error(), "io.max") || strings.Contains(err.Error(), "nri-blkio") {
			t.Errorf("a container with io.max in its spec: %v, want an error of the runtime about io.max", err)
		}
		t.Logf("the runtime's error: %v", err)
	}
	return has
}

// wantDevices verifies that devices has the reason for each file that the kernel does not have, and no other.
func wantDevices(t *testing.T, has map[string]bool) {
	t.Helper()
	out, err := lab.Command(t, "devices")
	for _, f := range features {
		if err != nil || strings.Contains(out, f.devices) == has[f.file] {
			t.Errorf("devices on a kernel with %v: error %v, reason %q\n%s", has, err, f.devices, out)
		}
	}
}

// awaitStatus waits until status has a text: parts report each two seconds.
func awaitStatus(t *testing.T, text string, args ...string) {
	t.Helper()
	lab.Eventually(t, "status has "+text, func() error {
		out, err := lab.Command(t, append([]string{"status"}, args...)...)
		if err == nil && !strings.Contains(out, text) {
			err = fmt.Errorf("it is\n%s", out)
		}
		return err
	})
}

func wantMetric(t *testing.T, name string, want float64) {
	t.Helper()
	lab.Eventually(t, name, func() error {
		got, err := scrape(name)
		if err == nil && got != want {
			err = fmt.Errorf("it is %v, want %v", got, want)
		}
		return err
	})
}
