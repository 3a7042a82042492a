package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/nri-blkio/nri-blkio/plugin/nodereport"
	"github.com/nri-blkio/nri-blkio/test/e2e/cri"
	"github.com/nri-blkio/nri-blkio/test/e2e/lab"
)

// monitoredManifest has pods that use the disk of ext4: one that its limit holds, one with a weight and a limit, and one that writes now and then,
// below its limit.
const monitoredManifest = `
apiVersion: v1
kind: Pod
metadata: {name: held, namespace: default, annotations: {%[1]scontainers: "/data wbps=1Mi wiops=200"}}
spec:
  hostNetwork: true
  terminationGracePeriodSeconds: 1
  containers:
  - {name: w, image: %[3]s, imagePullPolicy: Never, args: [write, --direct, --path, /data/held], volumeMounts: [{name: data, mountPath: /data}]}
  volumes: [{name: data, hostPath: {path: %[4]s}}]
---
apiVersion: v1
kind: Pod
metadata: {name: weighted, namespace: default, annotations: {%[1]scontainers: "/data wiops=100", %[2]scontainers: "50"}}
spec:
  hostNetwork: true
  terminationGracePeriodSeconds: 1
  containers:
  - {name: w, image: %[3]s, imagePullPolicy: Never, args: [write, --direct, --block, 4Ki, --path, /data/weighted], volumeMounts: [{name: data, mountPath: /data}]}
  volumes: [{name: data, hostPath: {path: %[4]s}}]
---
apiVersion: v1
kind: Pod
metadata: {name: below, namespace: default, annotations: {%[1]scontainers: "/data wbps=8Mi"}}
spec:
  hostNetwork: true
  terminationGracePeriodSeconds: 1
  containers:
  - name: w
    image: docker.io/local/busybox:1
    imagePullPolicy: Never
    command: [sh, -c, "while dd if=/dev/zero of=/data/below bs=64k count=32 conv=fsync; do sleep 2; done"]
    volumeMounts: [{name: data, mountPath: /data}]
  volumes: [{name: data, hostPath: {path: %[4]s}}]
`

// monitoredPods are the pods with annotations: those of monitoredManifest, and the one of the release.
const monitoredPods = 4

// TestMonitoring installs the package of the chart with metrics, runs pods at and below their limits, and looks at them as one would on call:
// with a Prometheus that scrapes the node, and with kubectl blkio.
//
//e2e:proof
func TestMonitoring(t *testing.T) {
	r := newRelease(t)
	r.must("install", "nri-blkio", chartPackage(), chartParts+",metrics.enabled=true,metrics.dashboard.enabled=true", "--create-namespace")
	t.Cleanup(func() { r.must("uninstall", "nri-blkio", "--wait", "--timeout", helmTime) })
	r.mountToken()
	m := startPrometheus(t)
	r.isScrapedBy(m, "nri-blkio", "nri-blkio-writeback", "nri-blkio-cluster")
	began := time.Now().Truncate(time.Millisecond) // as Prometheus does
	for _, name := range []string{"held", "weighted", "below"} {
		lab.File(t, "ext4", name)
	}
	r.apply(fmt.Sprintf(monitoredManifest, lab.Limits, lab.Weight, cri.Image, lab.Volumes["ext4"]))
	lab.Within(t, clusterDeadline, "each pod is at its limit or below", func() error {
		const of = `sum(rate(nri_blkio_pod_limit_seconds_total{pod=%q}[20s]))` // a weight counts on each disk
		for _, pod := range []string{"held", "weighted", "below"} {
			if used, err := m.one(fmt.Sprintf(of, pod)); err != nil || used <= 0 || pod != "below" && used < 0.8 {
				return fmt.Errorf("pod %s: limits explain %.2f of the time: %w", pod, used, err)
			}
		}
		return nil
	})
	t.Run("KubectlBlkio", func(t *testing.T) { r.by(t).shows() })
	t.Run("Scraped", func(t *testing.T) { r.by(t).isScraped(m.by(t), began) })
}

// by returns the same for a subtest.
func (r *release) by(t *testing.T) *release {
	l := *r.live
	l.T = t
	return &release{&l, r.home}
}

// isScraped verifies the metrics of the pods, the queries of the dashboard and the alerts. With a proof, it edits a limit, and
// measures what the picture of the dashboard shows.
func (r *release) isScraped(m monitor, began time.Time) {
	r.Helper()
	const (
		limit   = lab.MiB
		atLimit = `sum(rate(nri_blkio_pod_limit_seconds_total{pod="held"}[30s]))`
		waits   = `sum(rate(nri_blkio_pod_io_waiting_seconds_total{pod="held"}[30s]))`
	)
	for query, want := range map[string][2]float64{
		`nri_blkio_pod_limit_bytes_per_second{pod="held", op="write"}`:      {limit, limit},
		`sum(rate(nri_blkio_pod_bytes_total{pod="held", op="write"}[30s]))`: {0.8 * limit, 1.1 * limit},
		atLimit:               {0.8, 1.1},
		waits:                 {0.5, 1.1},
		waits + "-" + atLimit: {-0.5, 0.25},
		`nri_blkio:pod_limit:ratio_rate5m{pod="held"}`:                   {0.01, 1}, // of 5 minutes, which have not passed
		`sum(rate(nri_blkio_pod_operations_total{pod="weighted"}[30s]))`: {70, 110},
		`nri_blkio_weight_share_ratio{pod="weighted", disk="vdb"}`:       {0.01, 1},
		`count(nri_blkio_disk_bytes_total{disk="vdb"})`:                  {2, 2},
		`nri_blkio_containers{state="failed"}`:                           {0, 0},
	} {
		lab.Within(m.T, time.Minute, query+" is within its bounds", func() error { // rates begin with samples from before the pods ran
			got, err := m.one(query)
			if err == nil && (got < want[0] || got > want[1]) {
				err = fmt.Errorf("%v, want %v to %v", got, want[0], want[1])
			}
			return err
		})
	}
	if *lab.Proof {
		time.Sleep(90 * time.Second)
		r.change("/api/v1/namespaces/default/pods/held", "annotations", lab.Limits+"containers=/data wbps=2Mi wiops=200")
		time.Sleep(90 * time.Second)
	}
	measured := m.panels(began)
	m.isQuiet()
	if *lab.Proof {
		m.report(measured)
	}
}

// blkio runs kubectl blkio, and verifies its exit status.
func (r *release) blkio(status int, args ...string) (stdout, stderr string) {
	r.Helper()
	ctx, cancel := context.WithTimeout(r.Context(), clusterDeadline)
	defer cancel()
	cmd := exec.CommandContext(ctx, "kubectl", append([]string{"blkio"}, args...)...)
	cmd.Env = append(os.Environ(), "KUBECONFIG=/etc/kubernetes/admin.conf", "PATH="+lab.Node.Payload+":"+os.Getenv("PATH"))
	var out, problem bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problem
	err := cmd.Run()
	got := 0
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		got = exit.ExitCode()
	} else if err != nil {
		r.Fatal(err)
	}
	if got != status {
		r.Errorf("kubectl blkio %s: exit status %d, want %d: %s%s", strings.Join(args, " "), got, status, &out, &problem)
	}
	return out.String(), problem.String()
}

// reports runs kubectl blkio, and decodes the JSON that it writes.
func (r *release) reports(into any, args ...string) {
	r.Helper()
	out, problem := r.blkio(0, append(args, "-o", "json")...)
	if err := json.Unmarshal([]byte(out), into); err != nil {
		r.Fatalf("kubectl blkio %s: %v in %q, %q", strings.Join(args, " "), err, out, problem)
	}
}

// shows verifies what kubectl blkio shows of the node, of a pod that its limit holds, and of what does not exist.
func (r *release) shows() {
	r.Helper()
	r.isReported()
	if out, _ := r.blkio(0, "status", "held"); !strings.Contains(out, "default/held") || !strings.Contains(out, "wbps=1Mi") || strings.Contains(out, "weighted") {
		r.Errorf("status of one pod: %s", out)
	}
	r.isOnTop("held")
	var why struct {
		Cause, Text string
		Unknown     []string
	}
	if r.reports(&why, "why", "default/held", "--for=5s"); why.Cause != "own-limit" || !strings.Contains(why.Text, "wbps=1Mi") {
		r.Errorf("why: %+v", why)
	}
	// The part has no right to see what waits for a journal, and must tell.
	if unknown := strings.Join(why.Unknown, "\n"); !strings.Contains(unknown, "journal") || !strings.Contains(unknown, "CAP_SYS_ADMIN") {
		r.Errorf("unknown to why: %q", why.Unknown)
	}
	if out, _ := r.blkio(0, "check", "held"); !strings.Contains(out, "wbps=1Mi") {
		r.Errorf("check: %s", out)
	}
	r.calibrates()
	r.blkio(0, "clear", "live")
	r.await("cleared", "", "", "")
	for want, args := range map[string][]string{
		`pods "absent" not found`:                  {"status", "absent"},
		"node absent: no pod nri-blkio runs there": {"status", "--node", "absent"},
	} {
		if out, problem := r.blkio(3, args...); out != "" || !strings.Contains(problem, want) {
			r.Errorf("kubectl blkio %s: %q, %q, want %s", strings.Join(args, " "), out, problem, want)
		}
	}
}

// calibrates verifies that a disk which no pod uses is calibrated on the node, and that the pod which does it is deleted.
func (r *release) calibrates() {
	r.Helper()
	const disk = "vdj"
	out, problem := r.blkio(1, "calibrate", "--node", "node", disk, "--yes") // a warning: nothing was ever written there
	if !strings.Contains(out, "calibrated "+time.Now().UTC().Format("2006-")) || !strings.Contains(out, `names: ["`+disk+`"]`) || !strings.Contains(out, "model: {rbps: ") {
		r.Errorf("calibrate: %s%s", out, problem)
	}
	lab.Eventually(r.T, "the pod that calibrates is deleted", func() error {
		left, err := kubectl("", "get", "pods", "--namespace", chartNamespace, "--selector=app.kubernetes.io/name=nri-blkio-calibrate", "--output=name", "--ignore-not-found")
		if err == nil && left != "" {
			err = errors.New(left)
		}
		return err
	})
}

// isOnTop verifies that top shows a pod that its limit on vdb holds.
func (r *release) isOnTop(pod string) {
	r.Helper()
	var top struct {
		Rows []struct {
			Pod, Disk string
			Held      *float64
		}
	}
	r.reports(&top, "top", pod, "--delay=5s")
	held := map[string]float64{}
	for _, row := range top.Rows {
		if row.Held != nil {
			held[row.Pod+" "+row.Disk] = *row.Held
		}
	}
	if held[pod+" vdb"] < 0.5 { // what is missing is the processor's on a busy node
		r.Errorf("top of pod %s: held %v", pod, held)
	}
}

// isReported waits for the report of the node, which is sent before the node counts as silent, and verifies that status -A shows it.
func (r *release) isReported() {
	r.Helper()
	lab.Within(r.T, nodereport.MaxAge, "the node is reported with all of its pods", func() error {
		var lease struct {
			Metadata struct{ Annotations map[string]string }
		}
		err := r.get("/apis/coordination.k8s.io/v1/namespaces/"+chartNamespace+"/leases/"+nodereport.NamePrefix+"node", &lease)
		if err != nil {
			return err
		}
		report, err := nodereport.Decode([]byte(lease.Metadata.Annotations[nodereport.Annotation]))
		if err == nil && (report.Pods != monitoredPods || report.InForce != monitoredPods) {
			err = fmt.Errorf("%+v", report)
		}
		return err
	})
	var all struct {
		Nodes []struct {
			Node          string
			Silent        bool
			Pods, InForce int
		}
		Problems []nodereport.Problem
	}
	if r.reports(&all, "status", "-A"); len(all.Nodes) != 1 || all.Nodes[0].Node != "node" || all.Nodes[0].Silent || all.Nodes[0].InForce != monitoredPods || len(all.Problems) > 0 {
		r.Errorf("status -A: %+v", all)
	}
}
