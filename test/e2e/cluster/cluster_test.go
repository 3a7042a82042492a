package cluster

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nri-blkio/nri-blkio/test/e2e/cri"
	"github.com/nri-blkio/nri-blkio/test/e2e/lab"
)

// cluster is the control plane of the node, and the kubelet as its only node.
type cluster struct {
	*testing.T
	applied *strings.Builder // the manifests of the test's objects, which go with it
}

// clusterDeadline is the time in which the control plane has to start, and all pods of a test have to
// run: programs of 80 MB come up on two emulated CPUs.
const clusterDeadline = 10 * time.Minute

const clusterUnit = "control-plane.target"

var clusterUnits = []string{"cluster-kubelet", "kube-scheduler", "kube-controller-manager", "kube-apiserver", "etcd"}

// churnManifest creates and ends pods until it is deleted, and fails with the first pod that does.
const churnManifest = `
apiVersion: batch/v1
kind: Job
metadata: {name: churn, namespace: default}
spec:
  parallelism: 2
  completions: 1000
  backoffLimit: 0
  template:
    metadata:
      annotations: {%[1]scontainers: "/data wbps=4Mi"}
    spec:
      hostNetwork: true
      restartPolicy: Never
      terminationGracePeriodSeconds: 1
      containers:
      - {name: c, image: %[2]s, imagePullPolicy: Never, args: [sleep, --seconds, "1"], volumeMounts: [{name: data, mountPath: /data}]}
      volumes:
      - {name: data, hostPath: {path: %[3]s}}
`

// stopCluster ends the control plane, and forgets its objects.
func stopCluster() error {
	// The units are stopped, not the target: systemctl would not wait for the target's units.
	err := lab.StopUnits(clusterUnits...)
	return errors.Join(err, os.RemoveAll("/run/etcd")) // the next one is another cluster
}

// stopsCluster ends the control plane with the test, so that the next one has another.
func stopsCluster(t *testing.T) {
	t.Helper()
	t.Cleanup(func() {
		if err := stopCluster(); err != nil {
			t.Error(err)
		}
	})
}

// startCluster starts the control plane unless it runs, and waits for the kubelet to have joined. The tests share
// one, since on two emulated CPUs it needs most of a minute to start: it ends after a test that fails, and with TestMain.
func startCluster(t *testing.T) cluster {
	t.Helper()
	c := cluster{t, &strings.Builder{}}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("pods:\n%s\nEvents:\n%s", c.output("describe", "pods"), c.output("get", "events.events.k8s.io", "-n", "default"))
			lab.LogUnits(t, clusterUnits...)
			if err := stopCluster(); err != nil {
				t.Error(err)
			}
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), clusterDeadline)
	defer cancel()
	if out, err := exec.CommandContext(ctx, "systemctl", "start", clusterUnit).CombinedOutput(); err != nil {
		t.Fatalf("start %s: %v: %s", clusterUnit, err, out)
	}
	lab.Within(t, clusterDeadline, "the node is a ready one of the control plane", func() error {
		var node struct {
			Status struct {
				Conditions []struct{ Type, Status string }
			}
		}
		err := c.get("/api/v1/nodes/node", &node)
		if err == nil && !slices.Contains(node.Status.Conditions, struct{ Type, Status string }{"Ready", "True"}) {
			err = fmt.Errorf("its conditions are %v", node.Status.Conditions)
		}
		return err
	})
	return c
}

// apply makes objects, which go with the test.
func (c cluster) apply(manifest string) {
	c.Helper()
	if c.applied.Len() == 0 {
		c.Cleanup(c.deleteApplied)
	}
	c.applied.WriteString("\n---\n" + manifest)
	c.kubectl(manifest, "apply", "-f", "-")
}

// deleteApplied deletes all objects at once: each kubectl takes seconds of an emulated CPU. Pods are first: a claim is not
// removed while one uses it, and a pod is gone once its volumes are unmounted.
func (c cluster) deleteApplied() {
	c.Helper()
	for _, args := range [][]string{{"pods", "--all"}, {"-f", "-", "--ignore-not-found"}} {
		if out, err := kubectl(c.applied.String(), append([]string{"delete", "--timeout=" + clusterDeadline.String()}, args...)...); err != nil {
			c.Errorf("delete %s: %v: %s", args, err, out)
		}
	}
}

// churning runs f while pods are created and end, and verifies that none of them fails.
func (c cluster) churning(f func()) {
	c.Helper()
	c.kubectl(fmt.Sprintf(churnManifest, lab.Limits, cri.Image, lab.Volumes["ext4"]), "apply", "-f", "-")
	succeeded := func() string {
		return c.kubectl("", "get", "job", "churn", "-o", "jsonpath={.status.succeeded}")
	}
	lab.Within(c.T, clusterDeadline, "pods churn", func() error {
		if succeeded() == "" {
			return errors.New("none has ended")
		}
		return nil
	})
	before := succeeded()
	f()
	if after, failed := succeeded(), c.kubectl("", "get", "job", "churn", "-o", "jsonpath={.status.failed}"); after == before || failed != "" && failed != "0" {
		c.Errorf("of the churning pods %s had ended before and %s afterwards; %q failed", before, after, failed)
	} else {
		c.Logf("%s pods had ended before and %s afterwards", before, after)
	}
	c.kubectl("", "delete", "job", "churn", "--cascade=foreground", "--timeout=10m")
}

// get reads an object from the API server, as kubectl get --raw does. It is for what waits for a change: kubectl takes more
// than a second of an emulated CPU, which the control plane needs meanwhile.
func (c cluster) get(object string, into any) error {
	c.Helper()
	return c.call(http.MethodGet, object, http.NoBody, into)
}

// change sets and removes "annotations" or "labels" of an object by KEY=VALUE and KEY-, as kubectl annotate and kubectl label do.
func (c cluster) change(object, kind string, pairs ...string) {
	c.Helper()
	values := map[string]any{}
	for _, pair := range pairs {
		if key, value, ok := strings.Cut(pair, "="); ok {
			values[key] = value
		} else {
			values[strings.TrimSuffix(pair, "-")] = nil
		}
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{kind: values}})
	if err == nil {
		err = c.call(http.MethodPatch, object, bytes.NewReader(patch), new(any))
	}
	if err != nil {
		c.Fatalf("change %s %q of %s: %v", kind, pairs, object, err)
	}
}

// call makes one request to the API server.
func (c cluster) call(method, object string, body io.Reader, into any) error {
	c.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), lab.Deadline) // also at the end of the test
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, "https://127.0.0.1:6443"+object, body)
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer node")
	request.Header.Set("Content-Type", "application/merge-patch+json")
	// The API server's certificate is its own.
	client := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s of %s", response.Status, object)
	}
	return json.NewDecoder(response.Body).Decode(into)
}

// kubectl fails the test if kubectl does.
func (c cluster) kubectl(input string, args ...string) string {
	c.Helper()
	out, err := kubectl(input, args...)
	if err != nil {
		c.Fatalf("kubectl %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return out
}

// output returns what kubectl prints, also if it fails.
func (c cluster) output(args ...string) string {
	out, err := kubectl("", args...)
	if err != nil {
		return err.Error() + ": " + out
	}
	return out
}

func kubectl(input string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), clusterDeadline)
	defer cancel()
	cmd := exec.CommandContext(ctx, "kubectl", append([]string{"--kubeconfig", "/etc/kubernetes/admin.conf"}, args...)...)
	cmd.Stdin = strings.NewReader(input)
	out, err := cmd.CombinedOutput()
	return string(out), err
}
