package cluster

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nri-blkio/nri-blkio/plugin/podevent"
	"github.com/nri-blkio/nri-blkio/test/e2e/cri"
	"github.com/nri-blkio/nri-blkio/test/e2e/lab"
)

// refusedManifest is a pod with a mistake in its annotation.
const refusedManifest = `
apiVersion: v1
kind: Pod
metadata:
  name: refused
  namespace: default
  annotations: {%[1]s: "/data wpbs=8Mi"}
spec:
  hostNetwork: true
  terminationGracePeriodSeconds: 1
  containers:
  - {name: c, image: %[2]s, imagePullPolicy: Never, args: [sleep, --seconds, "100000"]}
`

// volumePod is a pod with containers on the volume on ext4, whose names are those of its annotations container.NAME.
func volumePod(name, labels string, limitsOf map[string]string, args ...string) string {
	var annotations, containers []string
	for _, c := range slices.Sorted(maps.Keys(limitsOf)) {
		annotations = append(annotations, fmt.Sprintf("%scontainer.%s: %q", lab.Limits, c, limitsOf[c]))
		containers = append(containers, fmt.Sprintf("{name: %s, image: %s, imagePullPolicy: Never, args: [%s], volumeMounts: [{name: data, mountPath: /data}]}",
			c, cri.Image, strings.Join(args, ", ")))
	}
	return fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s, namespace: default, labels: {%s}, annotations: {%s}}
spec:
  hostNetwork: true
  terminationGracePeriodSeconds: 1
  containers: [%s]
  volumes: [{name: data, hostPath: {path: %s}}]
`, name, labels, strings.Join(annotations, ", "), strings.Join(containers, ", "), lab.Volumes["ext4"])
}

// eventsPolicy has a rule for each of two pods.
const eventsPolicy = `
rules:
- {name: trial, match: {podSelector: {matchLabels: {rule: trial}}}, mode: observe}
- {name: ignored, match: {podSelector: {matchLabels: {rule: ignored}}}, annotations: ignore}
`

// events returns how many Events of nri-blkio a pod has with a reason and a text, and how often they have occurred. Earlier pods of the
// same name do not count: their Events stay for an hour.
func (c cluster) events(pod string, reason podevent.Reason, text string) (events, count int) {
	c.Helper()
	var of struct{ Metadata struct{ UID string } }
	if err := c.get("/api/v1/namespaces/default/pods/"+pod, &of); err != nil {
		c.Fatal(err)
	}
	var list struct {
		Items []struct {
			Reason, Note, ReportingController string
			Regarding                         struct{ UID string }
			Series                            *struct{ Count int }
		}
	}
	if err := c.get("/apis/events.k8s.io/v1/namespaces/default/events", &list); err != nil {
		c.Fatal(err)
	}
	for _, e := range list.Items {
		if e.ReportingController != "nri-blkio" || e.Regarding.UID != of.Metadata.UID || e.Reason != string(reason) || !strings.Contains(e.Note, text) {
			continue
		}
		events++
		if e.Series == nil {
			count++
		} else {
			count += e.Series.Count
		}
	}
	return events, count
}

// hasEvent waits until a pod has one Event with a reason and a text.
func (c cluster) hasEvent(pod string, reason podevent.Reason, text string) {
	c.Helper()
	lab.Within(c.T, clusterDeadline, fmt.Sprintf("pod %s has the Event %s", pod, reason), func() error {
		if events, _ := c.events(pod, reason, text); events != 1 {
			return fmt.Errorf("%d of them with %q", events, text)
		}
		return nil
	})
}

// hasEventsOfPolicy verifies the Events of a pod that is only observed, and of one whose annotations are ignored.
func (c cluster) hasEventsOfPolicy() {
	c.Helper()
	for _, name := range []string{"trial", "ignored"} {
		c.apply(volumePod(name, "rule: "+name, map[string]string{"c": "/data wbps=8Mi"}, "sleep", "--seconds", `"100000"`))
	}
	c.hasEvent("trial", podevent.Observed, "container c would get vdb wbps=8388608")
	c.hasEvent("ignored", podevent.NotInForce, "some limits are not in force: ")
}

// hasContestedFile verifies the Event of a pod whose containers write one file of the volume with different limits.
func (c cluster) hasContestedFile(name string) {
	c.Helper()
	c.apply(volumePod("contest", "", map[string]string{"a": "/data wbps=2Mi", "b": "/data wbps=4Mi"}, "write", "--path", "/data/"+name, "--span", "16Mi"))
	lab.StartRepair(c.T)
	c.hasEvent("contest", podevent.ContestedFile, " is written by another container of the pod with other limits as well")
	c.kubectl("", "delete", "pod", "contest")
}

// TestEvents verifies that each reason is an Event of the pods that it concerns, and that restarts of both parts make no second ones.
func TestEvents(t *testing.T) {
	exchange, events := filepath.Join(t.TempDir(), "exchange"), filepath.Join(t.TempDir(), "events")
	limitsArgs := []string{"--only", "limits", "--exchange-dir", exchange, "--events-dir", events, "--policy", lab.PolicyFile(t, eventsPolicy)}
	contested := lab.File(t, "ext4", "contested")
	p := lab.StartPlugin(t, limitsArgs...)
	c := startCluster(t)
	part := startClusterPart(t, exchange, "--events-dir", events)
	l := newLive(t, c)
	c.apply(fmt.Sprintf(refusedManifest, lab.Limits+"containers", cri.Image))
	const mistake = `unknown key "wpbs" (did you mean "wbps"?)`
	c.hasEvent("refused", podevent.Refused, mistake)
	if out := c.output("describe", "pod", "refused"); !strings.Contains(out, string(podevent.Refused)) || !strings.Contains(out, "container c is rejected: nri-blkio: ") {
		t.Errorf("kubectl describe does not show the Event:\n%s", out)
	}
	for _, name := range []string{"a", "b"} {
		c.hasEvent("live", podevent.NoMemoryLimit, "container "+name+" has a write limit")
	}

	key := lab.Limits + "containers"
	l.edit("annotations", key+"=/data wbps=2Mi")
	l.await("applied", "wbps=2097152", "wbps=2097152", "wbps=4194304")
	c.hasEvent("live", podevent.Changed, "container a gets vdb wbps=2097152")
	l.edit("annotations", key+"=/data wpbs=9Mi")
	l.rejected(`unknown key "wpbs"`)
	c.hasEvent("live", podevent.ChangeRejected, mistake)

	c.hasEventsOfPolicy()
	c.hasContestedFile(filepath.Base(contested))

	// The part sends a count every five minutes, and after its start.
	_, before := c.events("refused", podevent.Refused, mistake)
	p.Kill(t)
	lab.StartPlugin(t, limitsArgs...)
	part.Kill(t)
	uid := c.kubectl("", "get", "pod", "refused", "-o", "jsonpath={.metadata.uid}")
	lab.Within(t, clusterDeadline, "the kubelet tries again, and the new process counts on", func() error {
		d, err := podevent.Format().Read(events, uid)
		if err == nil && (len(d.Events) != 1 || d.Events[0].Count <= before) {
			err = fmt.Errorf("%v, %d times before", d.Events, before)
		}
		return err
	})
	startClusterPart(t, exchange, "--events-dir", events)
	lab.Within(t, clusterDeadline, "more rejections are counted", func() error {
		if n, count := c.events("refused", podevent.Refused, mistake); n != 1 || count <= before {
			return fmt.Errorf("%d Events, %d times, %d before", n, count, before)
		}
		return nil
	})
	for _, e := range []struct {
		reason podevent.Reason
		text   string
	}{{podevent.NoMemoryLimit, "container a"}, {podevent.NoMemoryLimit, "container b"}, {podevent.Changed, ""}, {podevent.ChangeRejected, ""}} {
		c.hasEvent("live", e.reason, e.text)
	}
}
