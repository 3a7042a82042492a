package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nri-blkio/nri-blkio/plugin/inspect"
	"github.com/nri-blkio/nri-blkio/test/e2e/cri"
	"github.com/nri-blkio/nri-blkio/test/e2e/lab"
)

// liveManifest is a pod with two containers on the volume on ext4.
const liveManifest = `
apiVersion: v1
kind: Pod
metadata:
  name: live
  namespace: default
  labels: {tier: web}
  annotations: {%[1]s: "/data wbps=8Mi"}
spec:
  hostNetwork: true
  terminationGracePeriodSeconds: 1
  containers:
  - {name: a, image: %[2]s, imagePullPolicy: Never, args: [sleep, --seconds, "100000"], volumeMounts: [{name: data, mountPath: /data}]}
  - {name: b, image: %[2]s, imagePullPolicy: Never, args: [sleep, --seconds, "100000"], volumeMounts: [{name: data, mountPath: /data}]}
  volumes:
  - {name: data, hostPath: {path: %[3]s}}
`

// live is a running pod, whose annotations the test edits at the API server.
type live struct {
	cluster
	pod  string // its cgroup
	a, b *cri.Container
}

// startClusterPart starts the part of the node that reads from the node's API server.
func startClusterPart(t *testing.T, exchange string, args ...string) *lab.Instance {
	t.Helper()
	token := t.TempDir()
	// The API server makes its certificate, with the authority's beside it.
	ca, err := os.ReadFile("/run/kubernetes/apiserver.crt")
	if err == nil {
		err = errors.Join(os.WriteFile(filepath.Join(token, "ca.crt"), ca, 0o600), os.WriteFile(filepath.Join(token, "token"), []byte("node"), 0o600))
	}
	if err != nil {
		t.Fatal(err)
	}
	args = append([]string{"--only", "cluster", "--node-name", "node", "--token-dir", token, "--exchange-dir", exchange}, args...)
	return lab.LaunchAs(t, []string{"env", "KUBERNETES_SERVICE_HOST=127.0.0.1", "KUBERNETES_SERVICE_PORT=6443"}, args...)
}

// newLive runs the pod.
func newLive(t *testing.T, c cluster) *live {
	t.Helper()
	c.apply(fmt.Sprintf(liveManifest, lab.Limits+"containers", cri.Image, lab.Volumes["ext4"]))
	l := &live{cluster: c, a: c.container("live", "a"), b: c.container("live", "b")}
	l.pod = path.Dir(l.a.Cgroup)
	return l
}

// edit changes "annotations" or "labels", and returns when the API server has answered.
func (l *live) edit(kind string, pairs ...string) time.Time {
	l.Helper()
	l.change("/api/v1/namespaces/default/pods/live", kind, pairs...)
	return time.Now()
}

// await waits until both containers and the pod have these limits on the disk of the volume, "" for none.
func (l *live) await(what, a, b, pod string) {
	l.Helper()
	lab.Eventually(l.T, what, func() error {
		return errors.Join(lab.CheckIOMax(l.a.Cgroup, onExt4(a)), lab.CheckIOMax(l.b.Cgroup, onExt4(b)), lab.CheckIOMax(l.pod, onExt4(pod)))
	})
}

func onExt4(value string) lab.Disks {
	if value == "" {
		return lab.Disks{}
	}
	return lab.Disks{"vdb": value}
}

// rejected waits for the row of status about the pod.
func (l *live) rejected(want string) {
	l.Helper()
	lab.Eventually(l.T, "status shows the rejected edit", func() error {
		out, err := lab.Command(l.T, "status", "-o", "json", "--pod", "default/live")
		if err != nil {
			return err
		}
		var s inspect.Status
		if err := json.Unmarshal([]byte(out), &s); err != nil {
			return err
		}
		for _, v := range s.Values {
			if v.State == inspect.ValueError && v.Container == "" && strings.Contains(v.Error, want) {
				return nil
			}
		}
		return fmt.Errorf("no row with %q: %s", want, out)
	})
}

// TestLive verifies that edits of a running pod at the API server change its limits, that an invalid one changes nothing, and
// that what is in force stays in force without the cluster part, without its directory, and over a restart.
func TestLive(t *testing.T) {
	exchange := filepath.Join(t.TempDir(), "exchange")
	p := lab.StartPlugin(t, "--only", "limits", "--exchange-dir", exchange)
	c := startCluster(t)
	part := startClusterPart(t, exchange)
	l := newLive(t, c)
	l.await("created", "wbps=8388608", "wbps=8388608", "wbps=16777216")
	key := lab.Limits + "containers"

	l.edit("annotations", key+"=/data wbps=2Mi", lab.Limits+"container.b=/data wbps=3Mi")
	l.await("lowered", "wbps=2097152", "wbps=3145728", "wbps=5242880")
	l.edit("annotations", key+"=/data wpbs=9Mi", lab.Limits+"container.b=/data wbps=9Mi")
	l.rejected(`unknown key "wpbs"`)
	lab.StaysIOMax(t, l.b.Cgroup, onExt4("wbps=3145728"))
	lab.WantIOMax(t, l.a.Cgroup, onExt4("wbps=2097152"))

	// A new process has the annotations of the sandbox from the runtime, and an invalid document.
	p.Kill(t)
	p = lab.StartPlugin(t, "--only", "limits", "--exchange-dir", exchange)
	lab.StaysIOMax(t, l.b.Cgroup, onExt4("wbps=3145728"))
	lab.WantIOMax(t, l.a.Cgroup, onExt4("wbps=2097152"))

	part.Kill(t)
	if err := os.RemoveAll(exchange); err != nil {
		t.Fatal(err)
	}
	l.edit("annotations", key+"=/data wbps=1Mi", lab.Limits+"container.b-")
	lab.StaysIOMax(t, l.b.Cgroup, onExt4("wbps=3145728"))
	p.Kill(t)
	lab.StartPlugin(t, "--only", "limits", "--exchange-dir", exchange) // makes the directory
	lab.StaysIOMax(t, l.b.Cgroup, onExt4("wbps=3145728"))
	startClusterPart(t, exchange)
	l.await("the cluster part is back", "wbps=1048576", "wbps=1048576", "wbps=2097152")

	l.edit("annotations", key+"-")
	l.await("removed", "", "", "")
	l.edit("annotations", lab.Limits+"pod-total=/data wbps=4Mi")
	l.await("added to a pod without annotations", "", "", "wbps=4194304")
}

// TestLiveLabel verifies that changed labels of a running pod and of its namespace select another rule.
func TestLiveLabel(t *testing.T) {
	exchange := filepath.Join(t.TempDir(), "exchange")
	policy := lab.PolicyFile(t, `
classes: {batch: {limits: ["/data riops=500"]}, trial: {limits: ["/data wiops=300"]}}
rules:
- {name: trial, match: {namespaceSelector: {matchLabels: {plan: trial}}}, class: trial}
- {name: batch, match: {podSelector: {matchLabels: {tier: batch}}}, class: batch}
`)
	p := lab.StartPlugin(t, "--only", "limits", "--exchange-dir", exchange, "--policy", policy)
	c := startCluster(t)
	part := startClusterPart(t, exchange)
	l := newLive(t, c)
	l.await("web", "wbps=8388608", "wbps=8388608", "wbps=16777216")
	l.edit("labels", "tier=batch")
	l.await("batch", "wbps=8388608 riops=500", "wbps=8388608 riops=500", "wbps=16777216 riops=1000")

	label := func(plan string) { l.change("/api/v1/namespaces/default", "labels", "plan"+plan) }
	t.Cleanup(func() { label("-") })
	label("=trial")
	const trial, ofBoth = "wbps=8388608 wiops=300", "wbps=16777216 wiops=600"
	l.await("a label of the namespace", trial, trial, ofBoth)
	part.Kill(t)
	p.Kill(t)
	lab.StartPlugin(t, "--only", "limits", "--exchange-dir", filepath.Join(t.TempDir(), "another"), "--policy", policy)
	lab.StaysIOMax(t, l.a.Cgroup, onExt4(trial))
	lab.WantIOMax(t, l.pod, onExt4(ofBoth))
}

// TestLiveFigures measures the time from the API server's answer to an edit until the limit is in force, while other pods
// are created and end. It runs in make proof only.
//
//e2e:proof
func TestLiveFigures(t *testing.T) {
	exchange := filepath.Join(t.TempDir(), "exchange")
	lab.StartPlugin(t, "--only", "limits", "--exchange-dir", exchange)
	c := startCluster(t)
	startClusterPart(t, exchange)
	var took []time.Duration
	c.churning(func() { took = editTimes(t, c) })
	slices.Sort(took)
	median, p99, last := took[len(took)/2], took[len(took)*99/100-1], took[len(took)-1]
	t.Logf("%d edits: in force after %v (median), %v (p99), %v (at most)", len(took), median, p99, last)
}

// editTimes edits a pod that is created anew after each ten edits, since the plugin delays further ones of a pod.
func editTimes(t *testing.T, c cluster) (took []time.Duration) {
	t.Helper()
	const edits, ofPod = 100, 10
	var l *live
	for i := range edits {
		if i%ofPod == 0 {
			if l != nil {
				l.kubectl("", "delete", "pod", "live")
			}
			l = newLive(t, c)
			l.await("created", "wbps=8388608", "wbps=8388608", "wbps=16777216")
		}
		mib := 2 + i%5
		answered := l.edit("annotations", fmt.Sprintf("%scontainers=/data wbps=%dMi", lab.Limits, mib))
		want := onExt4(fmt.Sprintf("wbps=%d", mib<<20))
		for lab.CheckIOMax(l.a.Cgroup, want) != nil || lab.CheckIOMax(l.b.Cgroup, want) != nil {
			if time.Since(answered) > lab.Deadline {
				t.Fatalf("edit %d is not in force after %v", i, lab.Deadline)
			}
			time.Sleep(5 * time.Millisecond)
		}
		took = append(took, time.Since(answered).Round(time.Millisecond))
	}
	return took
}
