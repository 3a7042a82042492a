package e2e

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
func startClusterPart(t *testing.T, exchange string, args ...string) *instance {
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
	return launchAs(t, []string{"env", "KUBERNETES_SERVICE_HOST=127.0.0.1", "KUBERNETES_SERVICE_PORT=6443"}, args...)
}

// newLive runs the pod.
func newLive(t *testing.T, c cluster) *live {
	t.Helper()
	c.apply(fmt.Sprintf(liveManifest, limits+"containers", cri.Image, volumes["ext4"]))
	l := &live{cluster: c}
	within(t, clusterDeadline, "the containers run", func() error {
		running, err := node.cri.Running(t.Context(), "io.kubernetes.pod.name", "live")
		if err != nil {
			return err
		}
		if l.a, l.b = running["a"], running["b"]; l.a == nil || l.b == nil {
			return errors.New("not both")
		}
		l.pod = path.Dir(l.a.Cgroup)
		return nil
	})
	return l
}

// edit changes annotations and labels as kubectl does, and returns when the API server has answered.
func (l *live) edit(kind string, pairs ...string) time.Time {
	l.Helper()
	l.kubectl("", append([]string{kind, "pod", "live", "--overwrite"}, pairs...)...)
	return time.Now()
}

// await waits until both containers and the pod have these limits on the disk of the volume, "" for none.
func (l *live) await(what, a, b, pod string) {
	l.Helper()
	eventually(l.T, what, func() error {
		return errors.Join(checkIOMax(l.a.Cgroup, onExt4(a)), checkIOMax(l.b.Cgroup, onExt4(b)), checkIOMax(l.pod, onExt4(pod)))
	})
}

func onExt4(value string) disks {
	if value == "" {
		return disks{}
	}
	return disks{"vdb": value}
}

// rejected waits for the row of status about the pod.
func (l *live) rejected(want string) {
	l.Helper()
	eventually(l.T, "status shows the rejected edit", func() error {
		out, err := command(l.T, "status", "-o", "json", "--pod", "default/live")
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
	p := startPlugin(t, "--only", "limits", "--exchange-dir", exchange)
	c := startCluster(t)
	part := startClusterPart(t, exchange)
	l := newLive(t, c)
	l.await("created", "wbps=8388608", "wbps=8388608", "wbps=16777216")
	key := limits + "containers"

	l.edit("annotate", key+"=/data wbps=2Mi", limits+"container.b=/data wbps=3Mi")
	l.await("lowered", "wbps=2097152", "wbps=3145728", "wbps=5242880")
	l.edit("annotate", key+"=/data wpbs=9Mi", limits+"container.b=/data wbps=9Mi")
	l.rejected(`unknown key "wpbs"`)
	staysIOMax(t, l.b.Cgroup, onExt4("wbps=3145728"))
	wantIOMax(t, l.a.Cgroup, onExt4("wbps=2097152"))

	// A new process has the annotations of the sandbox from the runtime, and an invalid document.
	p.kill(t)
	p = startPlugin(t, "--only", "limits", "--exchange-dir", exchange)
	staysIOMax(t, l.b.Cgroup, onExt4("wbps=3145728"))
	wantIOMax(t, l.a.Cgroup, onExt4("wbps=2097152"))

	part.kill(t)
	if err := os.RemoveAll(exchange); err != nil {
		t.Fatal(err)
	}
	l.edit("annotate", key+"=/data wbps=1Mi", limits+"container.b-")
	staysIOMax(t, l.b.Cgroup, onExt4("wbps=3145728"))
	p.kill(t)
	startPlugin(t, "--only", "limits", "--exchange-dir", exchange) // makes the directory
	staysIOMax(t, l.b.Cgroup, onExt4("wbps=3145728"))
	startClusterPart(t, exchange)
	l.await("the cluster part is back", "wbps=1048576", "wbps=1048576", "wbps=2097152")

	l.edit("annotate", key+"-")
	l.await("removed", "", "", "")
	l.edit("annotate", limits+"pod-total=/data wbps=4Mi")
	l.await("added to a pod without annotations", "", "", "wbps=4194304")
}

// TestLiveLabel verifies that changed labels of a running pod and of its namespace select another rule.
func TestLiveLabel(t *testing.T) {
	exchange := filepath.Join(t.TempDir(), "exchange")
	policy := policyFile(t, `
classes: {batch: {limits: ["/data riops=500"]}, trial: {limits: ["/data wiops=300"]}}
rules:
- {name: trial, match: {namespaceSelector: {matchLabels: {plan: trial}}}, class: trial}
- {name: batch, match: {podSelector: {matchLabels: {tier: batch}}}, class: batch}
`)
	p := startPlugin(t, "--only", "limits", "--exchange-dir", exchange, "--policy", policy)
	c := startCluster(t)
	part := startClusterPart(t, exchange)
	l := newLive(t, c)
	l.await("web", "wbps=8388608", "wbps=8388608", "wbps=16777216")
	l.edit("label", "tier=batch")
	l.await("batch", "wbps=8388608 riops=500", "wbps=8388608 riops=500", "wbps=16777216 riops=1000")

	label := func(plan string) {
		began := time.Now()
		l.kubectl("", "label", "namespace", "default", "--overwrite", "plan"+plan)
		l.Logf("kubectl label namespace took %v", time.Since(began).Round(10*time.Millisecond))
	}
	t.Cleanup(func() { label("-") })
	label("=trial")
	const trial, ofBoth = "wbps=8388608 wiops=300", "wbps=16777216 wiops=600"
	l.await("a label of the namespace", trial, trial, ofBoth)
	part.kill(t)
	p.kill(t)
	startPlugin(t, "--only", "limits", "--exchange-dir", filepath.Join(t.TempDir(), "another"), "--policy", policy)
	staysIOMax(t, l.a.Cgroup, onExt4(trial))
	wantIOMax(t, l.pod, onExt4(ofBoth))
}

// TestLiveFigures measures the time from the API server's answer to an edit until the limit is in force, while other pods
// are created and end. It runs in make proof only.
func TestLiveFigures(t *testing.T) {
	exchange := filepath.Join(t.TempDir(), "exchange")
	startPlugin(t, "--only", "limits", "--exchange-dir", exchange)
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
		answered := l.edit("annotate", fmt.Sprintf("%scontainers=/data wbps=%dMi", limits, mib))
		want := onExt4(fmt.Sprintf("wbps=%d", mib<<20))
		for checkIOMax(l.a.Cgroup, want) != nil || checkIOMax(l.b.Cgroup, want) != nil {
			if time.Since(answered) > deadline {
				t.Fatalf("edit %d is not in force after %v", i, deadline)
			}
			time.Sleep(5 * time.Millisecond)
		}
		took = append(took, time.Since(answered).Round(time.Millisecond))
	}
	return took
}
