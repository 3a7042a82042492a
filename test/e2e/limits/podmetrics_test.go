package limits

import (
	"fmt"
	"testing"
	"time"

	"github.com/nri-blkio/nri-blkio/test/e2e/lab"
)

// TestPodMetrics verifies with the kernel's own counters that a pod that is held by its limit waits, that its limit explains that, and
// what it and its disk are counted for; and that a pod without limits has metrics as well.
func TestPodMetrics(t *testing.T) {
	lab.StartPlugin(t, "--metrics-address", soakMetrics)
	load := loadCase{"c", "/data wbps=1Mi", "ext4", []string{"write", "--block", "64Ki", "--direct"}, "vdb", "wbytes", lab.MiB}
	pod := lab.RunPod(t, "held", lab.Annotations{lab.Limits + "containers": load.value})
	c := pod.MustRun(load.config(t))
	lab.WantRate(t, c.Cgroup, load.disk, load.counter, load.limit)

	of := fmt.Sprintf("namespace=\"default\",%%spod=%q", pod.Name)
	onDisk := `{disk="vdb",` + fmt.Sprintf(of, "") + "}"
	names := []string{
		`nri_blkio_pod_bytes_total{disk="vdb",` + fmt.Sprintf(of, `op="write",`) + "}", `nri_blkio_disk_bytes_total{disk="vdb",op="write"}`,
		"nri_blkio_pod_operations_total" + onDisk, "nri_blkio_pod_limit_seconds_total" + onDisk, "nri_blkio_pod_io_waiting_seconds_total{" + fmt.Sprintf(of, "") + "}",
	}
	wantMetric(t, `nri_blkio_pod_limit_bytes_per_second{disk="vdb",`+fmt.Sprintf(of, `op="write",`)+"}", lab.MiB)
	read := func() (values [5]float64, at [5]time.Time) {
		for i, name := range names {
			value, err := scrape(name)
			if err != nil {
				t.Fatal(err)
			}
			values[i], at[i] = value, time.Now()
		}
		return values, at
	}
	before, began := read()
	time.Sleep(20 * time.Second)
	after, ended := read()
	var rate [5]float64
	for i := range rate {
		rate[i] = (after[i] - before[i]) / ended[i].Sub(began[i]).Seconds()
	}
	t.Logf("per second: %.0f bytes of %.0f on the disk, %.1f operations, %.2f s at the limit, %.2f s of waiting", rate[0], rate[1], rate[2], rate[3], rate[4])
	// On a busy node the writer waits for a processor as well. What is counted in another unit, of another pod or disk, or not at all, is
	// out of these bounds by much.
	if part := rate[0] / lab.MiB; part < 0.5 || part > 1.1 || rate[1] < 0.7*rate[0] || rate[2]*65536 < 0.7*rate[0] {
		t.Error("the pod writes as much as its limit, in blocks of 64 KiB")
	}
	if rate[3] < 0.5 || rate[3] > 1.1 || rate[4]-rate[3] > 0.2 || rate[4] < 0.2 {
		t.Error("the limit explains nearly all of the waiting")
	}
	load.name = "free"
	free := lab.RunPod(t, load.name, nil)
	free.MustRun(load.config(t))
	of = fmt.Sprintf("namespace=\"default\",pod=%q}", free.Name)
	for _, name := range []string{`nri_blkio_pod_operations_total{disk="vdb",` + of, "nri_blkio_pod_io_waiting_seconds_total{" + of} {
		lab.Eventually(t, name+" counts", func() error {
			if value, err := scrape(name); err != nil || value <= 0 {
				return fmt.Errorf("it is %v: %w", value, err)
			}
			return nil
		})
	}
	if value, err := scrape(`nri_blkio_pod_limit_seconds_total{disk="vdb",` + of); err == nil {
		t.Errorf("without limits it is at its limits for %v s", value)
	}
}
