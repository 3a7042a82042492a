package deploy

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"text/template"
	"time"

	"github.com/nri-blkio/nri-blkio/test/e2e/cgroup"
	"github.com/nri-blkio/nri-blkio/test/e2e/cri"
	"github.com/nri-blkio/nri-blkio/test/e2e/lab"
)

const (
	manifests = "/etc/kubernetes/manifests"
	// kubeletDeadline is the time in which all pods of these tests have to run: they come at
	// once, and an emulated node takes minutes for them.
	kubeletDeadline = 6 * time.Minute
)

// staticPod is a pod that the kubelet runs from a file.
type staticPod struct {
	name        string
	annotations lab.Annotations
	init        string // YAML of initContainers
	containers  string // YAML of containers
	volume      string // YAML of the volume "data"
	check       func(t *testing.T, pod staticPod)
}

var manifest = template.Must(template.New("pod").Parse(`apiVersion: v1
kind: Pod
metadata:
  name: {{.Name}}
  annotations:
{{- range $key, $value := .Annotations}}
    {{$key}}: {{printf "%q" $value}}
{{- end}}
spec:
  hostNetwork: true
  terminationGracePeriodSeconds: 0
  initContainers: [{{.Init}}]
  containers: [{{.Containers}}]
  volumes: [{{with .Volume}}{name: data, {{.}}}{{end}}]
`))

// ctr is a container of a static pod, which sleeps for so many seconds; rest
// are more fields.
func ctr(name, seconds string, rest ...string) string {
	fields := append([]string{
		"name: " + name, "image: " + cri.Image, "imagePullPolicy: Never", "args: [sleep, --seconds, " + `"` + seconds + `"]`,
	}, rest...)
	return "{" + strings.Join(fields, ", ") + "}"
}

const (
	dataDir  = "volumeMounts: [{name: data, mountPath: /data}]"
	subDir   = "volumeMounts: [{name: data, mountPath: /data, subPath: sub}]"
	hostPath = "hostPath: {path: /mnt/ext4/e2e}"
	// The QoS class is part of the cgroup's path; without these it is BestEffort.
	burstable  = "resources: {requests: {cpu: 10m}}"
	guaranteed = "resources: {limits: {cpu: 100m, memory: 64Mi}}"
)

// TestKubelet verifies the limits of static pods. All manifests are written at once, and one pod is
// checked after another.
func TestKubelet(t *testing.T) {
	p := lab.StartPlugin(t)
	pods := append(staticPods(), podsOfTwo()...)
	startKubelet(t, pods)
	for _, p := range pods {
		t.Run(p.name, func(t *testing.T) { p.check(t, p) })
	}
	if p.Count(notKubelets) > 0 {
		t.Error("the runtime is taken for another one than the kubelet's")
	}
}

func staticPods() []staticPod {
	return []staticPod{{
		// First, since its init container ends.
		name:        "init",
		annotations: lab.Annotations{lab.Limits + "container.prepare": "/data wbps=2Mi", lab.Limits + "container.c": "/data wbps=1Mi"},
		init:        ctr("prepare", "20", dataDir), containers: ctr("c", lab.Forever, dataDir), volume: hostPath,
		check: checkInit,
	}, {
		name:        "hostpath",
		annotations: lab.Annotations{lab.Limits + "container.c": "/data wbps=1Mi"},
		containers:  ctr("c", lab.Forever, dataDir, burstable), volume: hostPath,
		check: inForce(lab.Disks{"vdb": "wbps=1048576"}, map[string]lab.Disks{"c": {"vdb": "wbps=1048576"}}),
	}, {
		// The name of the volume is known by the kubelet's directories. The path is another one
		// for a subPath.
		name:        "emptydir",
		annotations: lab.Annotations{lab.Limits + "container.c": "/data riops=1k; @data wbps=1Mi", lab.Limits + "container.sub": "@data wbps=2Mi"},
		containers:  ctr("c", lab.Forever, dataDir) + ", " + ctr("sub", lab.Forever, subDir), volume: "emptyDir: {}",
		check: inForce(lab.Disks{"vda": "wbps=3145728"}, map[string]lab.Disks{"c": {"vda": "wbps=1048576 riops=1000"}, "sub": {"vda": "wbps=2097152"}}),
	}, {
		// What the kubelet injects (hosts, the termination log) is on vda,
		// as is the writable layer; /data is tmpfs and left out.
		name:        "star",
		annotations: lab.Annotations{lab.Limits + "containers": "* wbps=1Mi"},
		containers:  ctr("c", lab.Forever, dataDir), volume: "emptyDir: {medium: Memory}",
		check: inForce(lab.Disks{"vda": "wbps=1048576"}, map[string]lab.Disks{"c": {"vda": "wbps=1048576"}}),
	}, {
		name:        "rootfs",
		annotations: lab.Annotations{lab.Limits + "containers": "rootfs wbps=1Mi"},
		containers:  ctr("c", lab.Forever, guaranteed),
		check:       inForce(lab.Disks{"vda": "wbps=1048576"}, map[string]lab.Disks{"c": {"vda": "wbps=1048576"}}),
	}, {
		name:        "weight",
		annotations: lab.Annotations{lab.Weight + "containers": "50"},
		containers:  ctr("c", lab.Forever),
		check:       checkWeight,
	}, {
		name:        "invalid",
		annotations: lab.Annotations{lab.Limits + "containers": "/data wpbs=1Mi"},
		containers:  ctr("c", lab.Forever, dataDir), volume: hostPath,
		check: checkInvalid,
	}, {
		name:        "restart",
		annotations: lab.Annotations{lab.Limits + "containers": "/data wbps=1Mi"},
		containers:  ctr("c", "20", dataDir), volume: hostPath,
		check: checkRestart,
	}}
}

// podsOfTwo have two containers, which share what their pod may do.
func podsOfTwo() []staticPod {
	two := ctr("a", lab.Forever, dataDir) + ", " + ctr("b", lab.Forever, dataDir)
	pods := []staticPod{{
		name:        "pod-total",
		annotations: lab.Annotations{lab.Limits + "pod-total": "/data wbps=3Mi", lab.Limits + "containers": "/data wbps=2Mi"},
		containers:  two, volume: hostPath,
		check: inForce(lab.Disks{"vdb": "wbps=3145728"}, map[string]lab.Disks{"a": {"vdb": "wbps=2097152"}, "b": {"vdb": "wbps=2097152"}}),
	}, {
		name:        "sidecar",
		annotations: lab.Annotations{lab.Limits + "container.side": "/data wbps=2Mi", lab.Limits + "container.c": "/data wbps=1Mi"},
		init:        ctr("side", lab.Forever, dataDir, "restartPolicy: Always"), containers: ctr("c", lab.Forever, dataDir), volume: hostPath,
		check: inForce(lab.Disks{"vdb": "wbps=3145728"}, map[string]lab.Disks{"side": {"vdb": "wbps=2097152"}, "c": {"vdb": "wbps=1048576"}}),
	}}
	if *lab.Proof { // the sidecar has a backstop
		pods = append(pods, staticPod{
			name:        "backstop",
			annotations: lab.Annotations{lab.Limits + "container.a": "/data wbps=1Mi", lab.Limits + "containers": "/data wbps=2Mi"},
			containers:  two, volume: hostPath,
			check: inForce(lab.Disks{"vdb": "wbps=3145728"}, map[string]lab.Disks{"a": {"vdb": "wbps=1048576"}, "b": {"vdb": "wbps=2097152"}}),
		})
	}
	return pods
}

// startKubelet gives the pods to a kubelet that ends with the test.
func startKubelet(t *testing.T, pods []staticPod) {
	t.Helper()
	t.Cleanup(func() { endUnits(t, "kubelet") })
	for _, p := range pods {
		var text bytes.Buffer
		err := manifest.Execute(&text, map[string]any{
			"Name": p.name, "Annotations": p.annotations, "Init": p.init, "Containers": p.containers, "Volume": p.volume,
		})
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(manifests, p.name+".yaml")
		lab.WriteFile(t, file, text.String())
		t.Cleanup(func() { os.Remove(file) })
	}
	if out, err := exec.CommandContext(t.Context(), "systemctl", "start", "kubelet").CombinedOutput(); err != nil {
		t.Fatalf("start the kubelet: %v: %s", err, out)
	}
}

// endUnits stops units and removes the pods that are left of them. If the test has
// failed, the end of what they log is shown.
func endUnits(t *testing.T, units ...string) {
	t.Helper()
	if t.Failed() {
		lab.LogUnits(t, units...)
	}
	if err := lab.StopUnits(units...); err != nil {
		t.Error(err)
	}
}

// fullName returns the name that the kubelet gives a static pod.
func (p staticPod) fullName(t *testing.T) string {
	t.Helper()
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	return p.name + "-" + host
}

// running waits until these containers of the pod run.
func (p staticPod) running(t *testing.T, names ...string) map[string]*cri.Container {
	t.Helper()
	var found map[string]*cri.Container
	lab.Within(t, kubeletDeadline, "containers of pod "+p.name+" run", func() error {
		var err error
		if found, err = lab.Node.CRI.Running(t.Context(), "io.kubernetes.pod.name", p.fullName(t)); err != nil {
			return err
		}
		for _, name := range names {
			if found[name] == nil {
				return fmt.Errorf("container %s does not run", name)
			}
		}
		return nil
	})
	return found
}

// inForce checks a pod and its containers by their names.
func inForce(wantPod lab.Disks, want map[string]lab.Disks) func(*testing.T, staticPod) {
	return func(t *testing.T, p staticPod) {
		var names []string
		for name := range want {
			names = append(names, name)
		}
		for name, k := range p.running(t, names...) {
			lab.WantIOMax(t, k.Cgroup, want[name])
			lab.WantIOMax(t, filepath.Dir(k.Cgroup), wantPod)
		}
	}
}

// checkInit verifies that an init container is limited while it runs, and that the backstop of the pod is the
// sum of the running containers.
func checkInit(t *testing.T, p staticPod) {
	inForce(lab.Disks{"vdb": "wbps=2097152"}, map[string]lab.Disks{"prepare": {"vdb": "wbps=2097152"}})(t, p)
	inForce(lab.Disks{"vdb": "wbps=1048576"}, map[string]lab.Disks{"c": {"vdb": "wbps=1048576"}})(t, p)
}

func checkWeight(t *testing.T, p staticPod) {
	if w, err := cgroup.Dir(p.running(t, "c")["c"].Cgroup).Weight(); err != nil || w != 50 {
		t.Errorf("io.weight is %d (%v), want 50", w, err)
	}
}

// checkRestart verifies that a container that ends, and the one that replaces it, are limited. Each check is
// repeated until it was made while the container runs.
func checkRestart(t *testing.T, p staticPod) {
	var first *cri.Container
	lab.Within(t, kubeletDeadline, "container c is limited", func() error {
		first = p.running(t, "c")["c"]
		return lab.CheckIOMax(first.Cgroup, lab.LimitedDisk)
	})
	lab.Within(t, kubeletDeadline, "container c runs again", func() error {
		k := p.running(t, "c")["c"]
		if k.ID == first.ID {
			return errors.New("the container was not restarted yet")
		}
		// The pod has its limit, no sum with the dead.
		return errors.Join(lab.CheckIOMax(k.Cgroup, lab.LimitedDisk), lab.CheckIOMax(filepath.Dir(k.Cgroup), lab.LimitedDisk))
	})
}

// checkInvalid verifies that the kubelet's reason why a container waits, which kubectl describe
// shows, ends with the message of the plugin.
func checkInvalid(t *testing.T, p staticPod) {
	want := "nri-blkio: " + lab.Limits + `containers: entry 1 "/data wpbs=1Mi": unknown key "wpbs" (did you mean "wbps"?)`
	lab.Within(t, kubeletDeadline, "the kubelet reports why the container waits", func() error {
		reason, message, err := lab.Waiting(t.Context(), p.fullName(t), "c")
		if err != nil {
			return err
		}
		if reason != "CreateContainerError" || !strings.HasSuffix(message, want) {
			return fmt.Errorf("the container waits for %s: %s", reason, message)
		}
		return nil
	})
}
