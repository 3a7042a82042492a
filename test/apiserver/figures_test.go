package apiserver

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/nri-blkio/nri-blkio/plugin/poddoc"
	"github.com/nri-blkio/nri-blkio/plugin/podevent"
)

// maxMemory is what the part may use with 250 pods and 1,000 claims, in bytes.
const maxMemory = 40 << 20

// podLives is the number of pods whose lives are measured.
const podLives = 20

// TestClusterFigures measures the memory of the part, and what a start of the part and the life of a
// pod cost the API server. The figures are in docs/reference/benchmarks.md.
func TestClusterFigures(t *testing.T) {
	for _, tt := range []struct{ pods, withClaims, claims int }{{30, 10, 1}, {250, 250, 4}} {
		t.Run(fmt.Sprintf("%d pods", tt.pods), func(t *testing.T) {
			p := newPart(t, fmt.Sprintf("worker-figures-%d", tt.pods))
			p.namespace("figures", "team: a")
			api := p.clientset()
			for i := range tt.pods {
				claims := 0
				if i < tt.withClaims {
					claims = tt.claims
				}
				p.createPod(api, fmt.Sprintf("app-%d-%d", tt.pods, i), claims)
			}
			p.start()
			start := time.Now()
			p.complete(tt.pods + 1)
			t.Logf("start with %d claims: %v, %d bytes from the API server", tt.withClaims*tt.claims, time.Since(start).Round(time.Second/10), p.proxy.received.Load())
			peak := p.memory(10 * time.Second)
			t.Logf("memory (RssAnon): %.1f MiB at most in 10 s", float64(peak)/(1<<20))
			if peak > maxMemory {
				t.Errorf("%d bytes of memory, at most %d", peak, maxMemory)
			}
			p.livePods(api)
			var edited []string
			for i := range 25 {
				edited = append(edited, fmt.Sprintf("app-%d-%d", tt.pods, i))
			}
			p.edit(api, edited...)
			p.manyEvents(api)
		})
	}
}

// manyEvents measures the memory with as many long events as all pods may have.
func (p *part) manyEvents(api *kubernetes.Clientset) {
	p.Helper()
	pods, err := api.CoreV1().Pods("figures").List(p.Context(), metav1.ListOptions{FieldSelector: "spec.nodeName=" + p.node})
	if err != nil {
		p.Fatal(err)
	}
	n := min(podevent.MaxEvents, podevent.MaxTotal/len(pods.Items))
	for i := range pods.Items {
		var events []podevent.Event
		for j := range n {
			events = append(events, podevent.Event{Reason: podevent.Refused, Note: fmt.Sprint(strings.Repeat("x", 1000), j)})
		}
		p.note(podevent.Pod{UID: string(pods.Items[i].UID), Namespace: "figures", Name: pods.Items[i].Name}, 1, events...)
	}
	peak := p.memory(10 * time.Second)
	p.Logf("memory with %d events of %d pods: %.1f MiB at most in 10 s", n*len(pods.Items), len(pods.Items), float64(peak)/(1<<20))
	if peak > maxMemory {
		p.Errorf("%d bytes of memory, at most %d", peak, maxMemory)
	}
}

// livePods measures the lives of pods.
func (p *part) livePods(api *kubernetes.Clientset) {
	p.Helper()
	before := p.proxy.received.Load()
	for i := range podLives {
		p.livePod(api, fmt.Sprintf("life-%s-%d", p.node, i))
	}
	perPod := (p.proxy.received.Load() - before) / podLives
	p.Logf("life of a pod with a claim: %d bytes from the API server", perPod)
	if perPod == 0 || perPod > 256<<10 {
		p.Errorf("%d bytes for the life of a pod", perPod)
	}
}

// clientset returns a client that does not go through the proxy.
func (p *part) clientset() *kubernetes.Clientset {
	p.Helper()
	config := &rest.Config{Host: "https://" + server.address, QPS: -1, TLSClientConfig: rest.TLSClientConfig{CAData: server.ca}}
	config.CertData, config.KeyData = server.cert, server.key
	config.ContentType = runtime.ContentTypeProtobuf
	api, err := kubernetes.NewForConfig(config)
	if err != nil {
		p.Fatal(err)
	}
	return api
}

// complete waits for a number of documents, none of which waits for an object.
func (p *part) complete(n int) {
	p.Helper()
	// More than a minute: the part sends 20 requests a second.
	for end := time.Now().Add(3 * deadline); ; time.Sleep(100 * time.Millisecond) {
		documents, err := filepath.Glob(filepath.Join(p.dir, "*.json"))
		if len(documents) == n {
			return
		}
		if time.Now().After(end) {
			p.Fatalf("%d documents, want %d: %v", len(documents), n, err)
		}
	}
}

// createPod creates a pod of a usual size with claims.
func (p *part) createPod(api *kubernetes.Clientset, name string, claims int) *corev1.Pod {
	p.Helper()
	pod := usualPod(p.node, name)
	for i := range claims {
		claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprintf("data-%d-%s", i, name), Labels: pod.Labels,
			Annotations: map[string]string{
				poddoc.ClaimKey: "wbps=50Mi", "pv.kubernetes.io/bind-completed": "yes", "pv.kubernetes.io/bound-by-controller": "yes",
				"volume.kubernetes.io/storage-provisioner": "csi.example.com", "volume.kubernetes.io/selected-node": p.node,
			},
		}}
		class := "standard"
		claim.Spec = corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, VolumeName: fmt.Sprintf("pvc-0f9bd3ce-7a4e-4b0c-9f52-%012d", i), StorageClassName: &class,
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("10Gi")}},
		}
		if _, err := api.CoreV1().PersistentVolumeClaims("figures").Create(p.Context(), claim, metav1.CreateOptions{}); err != nil {
			p.Fatal(err)
		}
		volume := fmt.Sprintf("data-%d", i)
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: volume, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim.Name},
		}})
		c := &pod.Spec.Containers[0]
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: volume, MountPath: "/var/lib/" + volume})
	}
	created, err := api.CoreV1().Pods("figures").Create(p.Context(), pod, metav1.CreateOptions{})
	if err != nil {
		p.Fatal(err)
	}
	p.Cleanup(func() { p.removePod(api, name) })
	return created
}

// removePod deletes a pod at once.
func (p *part) removePod(api *kubernetes.Clientset, name string) {
	_ = api.CoreV1().Pods("figures").Delete(context.Background(), name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)}) // it may be gone
}

// usualPod returns a pod with two containers, as a Deployment has them.
func usualPod(node, name string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: name, Labels: map[string]string{"app.kubernetes.io/name": "app", "app.kubernetes.io/instance": "app-prod", "pod-template-hash": "7d9c5b8f6"},
		Annotations: map[string]string{
			"limits.blkio.noderesource.dev/containers": "* wbps=20Mi", "prometheus.io/scrape": "true", "prometheus.io/port": "8080",
			"checksum/config": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
		},
	}}
	pod.Spec.NodeName = node
	for _, c := range []string{"app", "proxy"} {
		container := corev1.Container{Name: c, Image: "registry.example/" + c + ":1.2.3", Args: []string{"--config=/etc/app/config.yaml", "--listen=:8080", "--log-format=json"}}
		for i := range 10 {
			container.Env = append(container.Env, corev1.EnvVar{Name: fmt.Sprintf("APP_SETTING_%d", i), Value: "a value of usual length"})
		}
		container.Resources = corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("256Mi")}}
		container.ReadinessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/ready", Port: intstr.FromInt32(8080)}}}
		container.VolumeMounts = []corev1.VolumeMount{{Name: "config", MountPath: "/etc/app", ReadOnly: true}}
		pod.Spec.Containers = append(pod.Spec.Containers, container)
	}
	pod.Spec.Volumes = []corev1.Volume{{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "app"}}}}}
	return pod
}

// edit measures the time from the answer of the API server to an edited annotation until the document
// has it. The goal, 2 s until the limit is in force, is measured on a node by TestLiveFigures: here a disk that is
// busy with a build has delayed one of 100 edits by nine seconds. The part writes a pod's document once a second, so these pods are
// edited by turns.
func (p *part) edit(api *kubernetes.Clientset, names ...string) {
	p.Helper()
	var took []time.Duration
	for i := range 100 {
		name := names[i%len(names)]
		pod, err := api.CoreV1().Pods("figures").Get(p.Context(), name, metav1.GetOptions{})
		if err != nil {
			p.Fatal(err)
		}
		time.Sleep(time.Second / time.Duration(len(names)))
		value := fmt.Sprintf("* wbps=%dMi", 1+i)
		patch := fmt.Sprintf(`{"metadata": {"annotations": {"limits.blkio.noderesource.dev/containers": %q}}}`, value)
		if _, err := api.CoreV1().Pods("figures").Patch(p.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
			p.Fatal(err)
		}
		took = append(took, p.hasLimits(string(pod.UID), value))
	}
	slices.Sort(took)
	p.Logf("an edited annotation is in the document after %v (median), %v at most of 100", took[50].Round(time.Millisecond), took[99].Round(time.Millisecond))
}

// hasLimits waits until the document of a pod has limits, and returns how long that took.
func (p *part) hasLimits(uid, limits string) time.Duration {
	p.Helper()
	for start := time.Now(); ; time.Sleep(time.Millisecond) {
		took := time.Since(start)
		d, err := poddoc.Format().Read(p.dir, uid)
		if err == nil && d.Annotations["limits.blkio.noderesource.dev/containers"] == limits {
			return took
		}
		if took > deadline {
			p.Fatalf("after %v the document does not have %q: %+v, %v", took, limits, d, err)
		}
	}
}

// livePod has a pod start and end, with the changes that the kubelet makes: it is created on the
// node, its status changes three times, it is to end, its status changes twice, and it is deleted.
func (p *part) livePod(api *kubernetes.Clientset, name string) {
	p.Helper()
	pod := p.createPod(api, name, 1)
	p.document(string(pod.UID), func(*poddoc.Document) string { return "" })
	for i := range 3 {
		p.patchStatus(api, name, i)
	}
	if err := api.CoreV1().Pods("figures").Delete(p.Context(), name, metav1.DeleteOptions{}); err != nil {
		p.Fatal(err)
	}
	for i := range 2 {
		p.patchStatus(api, name, 3+i)
	}
	p.removePod(api, name)
	p.gone(string(pod.UID))
}

// patchStatus changes the status of a pod to one of a usual size.
func (p *part) patchStatus(api *kubernetes.Clientset, name string, step int) {
	p.Helper()
	at := metav1.NewTime(time.Unix(int64(1.7e9)+int64(step), 0))
	status := corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.0.0.1", PodIPs: []corev1.PodIP{{IP: "10.0.0.1"}}, HostIP: "10.1.0.1", StartTime: &at}
	for _, c := range []corev1.PodConditionType{corev1.PodReady, corev1.PodInitialized, corev1.ContainersReady, corev1.PodScheduled, corev1.PodReadyToStartContainers} {
		status.Conditions = append(status.Conditions, corev1.PodCondition{Type: c, Status: corev1.ConditionTrue, LastTransitionTime: at})
	}
	for _, c := range []string{"app", "proxy"} {
		status.ContainerStatuses = append(status.ContainerStatuses, corev1.ContainerStatus{
			Name: c, Ready: true, Image: "registry.example/" + c + ":1.2.3", ContainerID: fmt.Sprintf("containerd://%064d", step),
			ImageID: "registry.example/" + c + "@sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
			State:   corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: at}},
		})
	}
	patch, err := json.Marshal(map[string]any{"status": status})
	if err == nil {
		_, err = api.CoreV1().Pods("figures").Patch(p.Context(), name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	}
	if err != nil {
		p.Fatal(err)
	}
}

// memory returns the largest RssAnon of the process within a time.
func (p *part) memory(d time.Duration) (peak int64) {
	p.Helper()
	anon := regexp.MustCompile(`RssAnon:\s+(\d+) kB`)
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
		m := anon.FindSubmatch(status)
		if err != nil || m == nil {
			p.Fatalf("no RssAnon: %v", err)
		}
		kb, _ := strconv.ParseInt(string(m[1]), 10, 64)
		peak = max(peak, kb<<10)
	}
	return peak
}
