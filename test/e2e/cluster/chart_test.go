package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nri-blkio/nri-blkio/plugin/podevent"
	"github.com/nri-blkio/nri-blkio/test/e2e/cri"
	"github.com/nri-blkio/nri-blkio/test/e2e/lab"
	"github.com/nri-blkio/nri-blkio/test/payload"
)

const (
	chartNamespace = "nri-blkio"
	// firstLimit is the time from `helm install` until a running pod has its limit, on a node that has the image and does
	// nothing else.
	firstLimit = time.Minute
	helmTime   = "10m"
	// chartParts are the optional parts that are installed besides the default ones.
	chartParts = "--set=cluster.enabled=true,admission.grammar=true"
)

// weightedManifest is a pod with a limit and a weight, which the runtime is told as it creates the container.
const weightedManifest = `
apiVersion: v1
kind: Pod
metadata:
  name: weighted
  namespace: default
  annotations: {%[1]scontainers: "/data wiops=900", %[2]scontainers: "50"}
spec:
  hostNetwork: true
  terminationGracePeriodSeconds: 1
  containers:
  - {name: w, image: %[3]s, imagePullPolicy: Never, args: [sleep, --seconds, "100000"], volumeMounts: [{name: data, mountPath: /data}]}
  volumes:
  - {name: data, hostPath: {path: %[4]s}}
`

// release is the chart in the node's cluster, with a pod that runs all the time.
type release struct {
	*live
	home string
}

// newRelease prepares the cluster with the pod, and installs nothing yet.
func newRelease(t *testing.T) *release {
	t.Helper()
	r := newChartCluster(t)
	// The same program under another name, so that an upgrade replaces the pods.
	for _, name := range []string{payload.ImageOfChart, nextImage()} {
		lab.Administer(t, "ctr", "-n", "k8s.io", "images", "tag", "--force", payload.Image, name)
	}
	r.live = newLive(t, r.cluster)
	return r
}

// newChartCluster prepares the cluster without the pod.
func newChartCluster(t *testing.T) *release {
	t.Helper()
	if err := lab.ImportImage(t.Context(), "nri-blkio.tar"); err != nil {
		t.Fatal(err)
	}
	c := startCluster(t)
	networkPods(t)
	reachAPIServer(t)
	t.Cleanup(func() {
		if t.Failed() {
			for _, args := range [][]string{{"describe", "pods"}, {"logs", "--prefix", "--tail=40", "--selector", "app.kubernetes.io/name"}, {"get", "events"}} {
				t.Logf("%s\n%s", args[0], c.output(append([]string{"-n", chartNamespace}, args...)...))
			}
		}
		c.output("delete", "namespace", chartNamespace, "--ignore-not-found", "--timeout=3m") // the kubelet has to remove the pods
	})
	return &release{live: &live{cluster: c}, home: t.TempDir()}
}

// networkPods gives pods that do not share the host's network one in which they reach the API server.
func networkPods(t *testing.T) {
	t.Helper()
	const file = "/etc/cni/net.d/05-pods.conflist" // the first one in this directory counts
	lab.WriteFile(t, file, `{"cniVersion": "1.0.0", "name": "pods", "plugins": [{"type": "ptp",
		"ipam": {"type": "host-local", "subnet": "10.99.0.0/24", "routes": [{"dst": "0.0.0.0/0"}]}}]}`)
	t.Cleanup(func() {
		if err := os.Remove(file); err != nil {
			t.Error(err)
		}
	})
}

// mountToken gives the cluster part the token of its service account. The admission plugin that does that for all pods is disabled
// on the node, whose other pods need none. An upgrade leaves the volume in place.
func (r *release) mountToken() {
	r.Helper()
	r.kubectl("", "-n", chartNamespace, "patch", "daemonset", "nri-blkio-cluster", "--type=json", "-p", `[
{"op": "add", "path": "/spec/template/spec/volumes/-", "value": {"name": "token", "projected": {"sources": [
  {"serviceAccountToken": {"path": "token"}},
  {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}}]}}},
{"op": "add", "path": "/spec/template/spec/containers/0/volumeMounts/-", "value": {"name": "token", "readOnly": true,
  "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}}]`)
}

// reachAPIServer makes the API server reachable at the address that the kubelet tells to pods. No kube-proxy does so.
func reachAPIServer(t *testing.T) {
	t.Helper()
	lab.Administer(t, "ip", "address", "replace", "10.0.0.1/32", "dev", "lo")
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "10.0.0.1:443")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		listener.Close()
		lab.Administer(t, "ip", "address", "delete", "10.0.0.1/32", "dev", "lo")
	})
	forward := func(client net.Conn) {
		defer client.Close()
		server, err := net.Dial("tcp", "127.0.0.1:6443")
		if err != nil {
			return // the client sees the end of the connection
		}
		defer server.Close()
		go func() {
			_, _ = io.Copy(server, client)
			server.Close()
		}()
		_, _ = io.Copy(client, server)
	}
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return // the test has ended
			}
			go forward(client)
		}
	}()
}

// helm runs helm for the release.
func (r *release) helm(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*clusterDeadline)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(lab.Node.Payload, payload.Helm), append(args, "--namespace", chartNamespace)...)
	cmd.Env = append(os.Environ(), "KUBECONFIG=/etc/kubernetes/admin.conf", "HOME="+r.home)
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("helm %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return string(out), err
}

// must runs helm, logs how long that took, and fails the test if helm does.
func (r *release) must(args ...string) {
	r.Helper()
	start := time.Now()
	if _, err := r.helm(args...); err != nil {
		r.Fatal(err)
	}
	r.Logf("helm %s: %v", args[0], time.Since(start).Round(time.Second))
}

// nextImage is the image of an upgrade.
func nextImage() string { return strings.TrimSuffix(payload.Image, "latest") + "next" }

// chartPackage is the file of the packaged chart.
func chartPackage() string { return filepath.Join(lab.Node.Payload, payload.Chart) }

// runs verifies that the pod of the limits part is ready, and has this image.
func (r *release) runs(want string) {
	r.Helper()
	lab.Within(r.T, clusterDeadline, "the pod of the limits part runs "+want, func() error {
		var list struct {
			Items []struct {
				Spec   struct{ Containers []struct{ Image string } }
				Status struct{ ContainerStatuses []struct{ Ready bool } }
			}
		}
		err := r.get("/api/v1/namespaces/"+chartNamespace+"/pods?labelSelector=app.kubernetes.io/name=nri-blkio", &list)
		if err != nil {
			return err
		}
		if len(list.Items) != 1 || list.Items[0].Spec.Containers[0].Image != want ||
			len(list.Items[0].Status.ContainerStatuses) == 0 || !list.Items[0].Status.ContainerStatuses[0].Ready {
			return fmt.Errorf("the pods are %+v", list.Items)
		}
		return nil
	})
}

// inForce reports whether the pod that runs all the time has its limits.
func (r *release) inForce() error {
	return errors.Join(lab.CheckIOMax(r.a.Cgroup, onExt4("wbps=8388608")), lab.CheckIOMax(r.b.Cgroup, onExt4("wbps=8388608")), lab.CheckIOMax(r.pod, onExt4("wbps=16777216")))
}

// during fails the test if that pod is ever without its limits while f runs.
func (r *release) during(f func()) {
	r.Helper()
	over, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		for {
			if err := r.inForce(); err != nil {
				ended <- err
				return
			}
			select {
			case <-over:
				ended <- nil
				return
			case <-time.After(200 * time.Millisecond):
			}
		}
	}()
	f()
	close(over)
	if err := <-ended; err != nil {
		r.Error(err)
	}
}

// settings returns what the node has of settings that the plugin makes: limits, weights and io.cost.
func settings() (found []string, err error) {
	const root = "/sys/fs/cgroup"
	err = filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // the cgroup was removed
		}
		if err != nil || e.IsDir() {
			return err
		}
		switch e.Name() {
		case "io.max", "io.weight", "io.cost.qos":
		default:
			return nil
		}
		text, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENODEV) {
			return nil
		}
		for line := range strings.Lines(string(text)) {
			line = strings.TrimSpace(line)
			if line == "default 100" || e.Name() == "io.cost.qos" && !strings.Contains(line, "enable=1") {
				continue
			}
			found = append(found, strings.TrimPrefix(path, root)+": "+line)
		}
		return err
	})
	return found, err
}

// TestChart installs the package of the chart with the cluster part and an admission policy, upgrades it to another image, and uninstalls it.
// A running pod keeps its limits until then, and nothing of them remains afterwards. With a proof, pods churn during the upgrade,
// `helm test` runs, and the release is rolled back and forth, also to the chart and the program of an earlier commit.
func TestChart(t *testing.T) {
	unset, err := settings()
	if err != nil || len(unset) > 0 {
		t.Fatalf("the node has settings before the test: %q, %v", unset, err)
	}
	r := newRelease(t)
	start := time.Now()
	r.must("install", "nri-blkio", chartPackage(), chartParts, "--create-namespace")
	lab.Within(t, clusterDeadline, "the first limit is in force", r.inForce)
	took := time.Since(start)
	t.Logf("first limit in force %v after helm install", took.Round(100*time.Millisecond))
	if *lab.Proof && took > firstLimit {
		t.Errorf("the first limit was in force after %v, want at most %v", took, firstLimit)
	}
	r.runs(payload.ImageOfChart)
	r.mountToken()
	r.apply(fmt.Sprintf(weightedManifest, lab.Limits, lab.Weight, cri.Image, lab.Volumes["ext4"]))
	lab.Within(t, clusterDeadline, "a weight enables io.cost", func() error {
		if found, err := settings(); err != nil || !strings.Contains(strings.Join(found, "\n"), "enable=1") {
			return fmt.Errorf("%q, %w", found, err)
		}
		return nil
	})

	upgrade := func() {
		r.must("upgrade", "nri-blkio", chartPackage(), "--set=image.digest=,image.tag=next", chartParts, "--wait", "--timeout", helmTime)
	}
	r.during(func() {
		if *lab.Proof {
			r.churning(upgrade)
		} else {
			upgrade()
		}
		r.runs(nextImage())
		if *lab.Proof {
			r.must("test", "nri-blkio", "--timeout", helmTime)
			r.must("rollback", "nri-blkio", "1", "--wait", "--timeout", helmTime)
			r.runs(payload.ImageOfChart)
			r.must("rollback", "nri-blkio", "2", "--wait", "--timeout", helmTime)
			r.runs(nextImage())
			r.meetsEarlier()
		}
	})
	if *lab.Proof {
		r.testFails()
	}
	r.followsEdits()
	r.must("uninstall", "nri-blkio", "--wait", "--timeout", helmTime)
	r.isRemoved()
}

// meetsEarlier goes back to the chart and the program of an earlier commit, and updates again.
func (r *release) meetsEarlier() {
	r.Helper()
	if err := lab.ImportImage(r.Context(), filepath.Join(payload.Earlier, "nri-blkio.tar")); err != nil {
		r.Fatal(err)
	}
	chart := filepath.Join(lab.Node.Payload, payload.Earlier, payload.Chart)
	r.must("upgrade", "nri-blkio", chart, "--set=image.digest=,image.tag=earlier", chartParts, "--wait", "--timeout", helmTime)
	r.runs(payload.EarlierImage)
	r.must("rollback", "nri-blkio", "2", "--wait", "--timeout", helmTime)
	r.runs(nextImage())
}

// followsEdits verifies that the cluster part and the admission policies work as they are installed.
func (r *release) followsEdits() {
	r.Helper()
	key := lab.Limits + "containers"
	r.edit("annotations", key+"=/data wbps=6Mi") // no other test does, whose events are still there
	r.await("edited", "wbps=6291456", "wbps=6291456", "wbps=12582912")
	r.hasEvent("live", podevent.Changed, "wbps=6291456")
	out, err := kubectl("", "annotate", "pod", "live", "--overwrite", key+"=/data wpbs=3Mi")
	if err == nil || !strings.Contains(out, "unknown key") {
		r.Errorf("the API server takes a wrong annotation: %v, %q", err, out)
	}
}

// testFails verifies that `helm test` fails while no pod of the limits part runs.
func (r *release) testFails() {
	r.Helper()
	selector := func(value string) {
		r.kubectl("", "-n", chartNamespace, "patch", "daemonset", "nri-blkio", "--type=merge", "-p", `{"spec": {"template": {"spec": {"nodeSelector": {"nowhere": `+value+`}}}}}`)
	}
	selector(`"true"`)
	r.kubectl("", "-n", chartNamespace, "wait", "--for=delete", "pods", "-l", "app.kubernetes.io/name=nri-blkio", "--timeout=2m")
	if out, err := r.helm("test", "nri-blkio", "--timeout", helmTime); err == nil {
		r.Errorf("helm test succeeds without the plugin: %s", out)
	}
	r.kubectl("", "-n", chartNamespace, "delete", "pod", "nri-blkio-test") // neither Helm nor the chart does, see docs/how-to/install.md
	selector("null")
	r.runs(nextImage())
}

// isRemoved verifies that neither the node nor the cluster has anything of the release.
func (r *release) isRemoved() {
	r.Helper()
	if found, err := settings(); err != nil || len(found) > 0 {
		r.Errorf("after helm uninstall the node has %q, %v", found, err)
	}
	lab.Within(r.T, clusterDeadline, "the objects of the release are deleted", func() error {
		out, err := kubectl("", "-n", chartNamespace, "get", "validatingadmissionpolicies,validatingadmissionpolicybindings,daemonsets,jobs,pods,roles,rolebindings,resourcequotas,configmaps,serviceaccounts,secrets", "-o", "name")
		for line := range strings.Lines(out) {
			if name := strings.TrimSpace(line); name != "configmap/kube-root-ca.crt" && name != "serviceaccount/default" {
				err = errors.Join(err, errors.New(name))
			}
		}
		return err
	})
}
