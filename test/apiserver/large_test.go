package apiserver

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// filler makes a part of a pod so large that the API server takes it within its deadline: its time grows with the number of parts.
var filler = strings.Repeat("x", 240) // constant

// largeKinds add one more part to a pod, of which the API server takes as many as fit.
var largeKinds = map[string]func(pod *corev1.Pod, i int){ // constant
	"mounts": func(pod *corev1.Pod, i int) {
		c := &pod.Spec.Containers[0]
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: "v", MountPath: fmt.Sprintf("/%d/%s", i, filler)})
	},
	"init containers": func(pod *corev1.Pod, i int) {
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, corev1.Container{Name: fmt.Sprintf("c%d", i), Image: "i", WorkingDir: "/" + filler})
	},
	"environment": func(pod *corev1.Pod, i int) {
		c := &pod.Spec.Containers[0]
		c.Env = append(c.Env, corev1.EnvVar{Name: fmt.Sprintf("E%d", i), Value: filler})
	},
	"labels":    func(pod *corev1.Pod, i int) { pod.Labels[fmt.Sprintf("%s/l%d", filler, i)] = filler[:63] },
	"arguments": func(pod *corev1.Pod, _ int) { c := &pod.Spec.Containers[0]; c.Args = append(c.Args, filler) },
}

// TestLargeFigures measures the part beside pods of a tenant that are as large as the API server takes. LARGE_PODS is the number of pods of
// each kind, by default 1. The figures of 50 are in docs/reference/benchmarks.md.
func TestLargeFigures(t *testing.T) {
	each := 1
	if text := os.Getenv("LARGE_PODS"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		each = n
	}
	p := newPart(t, "worker-large")
	p.namespace("large", "")
	p.namespace("figures", "")
	api := p.clientset()
	var often *corev1.Pod // whose changes cost the API server the least: one field has all of its arguments
	for kind, add := range largeKinds {
		first := strings.Fields(kind)[0]
		for i, count := 0, 0; i < each; i++ {
			var pod *corev1.Pod
			if pod, count = p.createLarge(api, fmt.Sprintf("large-%s-%d", first, i), add, count); i == 0 {
				t.Logf("%s: %d parts, %d bytes", kind, count, pod.Size())
			}
			if kind == "arguments" {
				often = pod
			}
		}
	}
	var beside []*corev1.Pod
	for i := range 25 {
		beside = append(beside, p.createPod(api, fmt.Sprint("beside-", i), 0))
	}
	p.start()
	start := time.Now()
	for _, pod := range beside {
		p.hasLimits(string(pod.UID), "* wbps=20Mi")
	}
	t.Logf("documents of the other namespace %v after the start", time.Since(start).Round(10*time.Millisecond))
	p.complete(len(largeKinds)*each + len(beside) + 1)
	t.Logf("all documents %v after the start, %d bytes from the API server", time.Since(start).Round(10*time.Millisecond), p.proxy.received.Load())
	t.Logf("memory: RssAnon %.1f MiB at most in 2 s, VmHWM %s", float64(p.memory(2*time.Second))/(1<<20), p.highWater())

	ctx, cancel := context.WithCancel(t.Context())
	patched := make(chan int)
	go func() { patched <- patchOften(ctx, api, often) }()
	start = time.Now()
	var names []string
	for _, pod := range beside {
		names = append(names, pod.Name)
	}
	p.edit(api, names...)
	took := time.Since(start)
	cancel()
	t.Logf("meanwhile a pod of %d bytes was patched %.0f times a second; VmHWM %s", often.Size(), float64(<-patched)/took.Seconds(), p.highWater())
}

// createLarge creates a pod with as many parts as the API server takes, or with count of them. It returns how many.
func (p *part) createLarge(api *kubernetes.Clientset, name string, add func(*corev1.Pod, int), count int) (*corev1.Pod, int) {
	p.Helper()
	const largest = 1_450_000 // bytes; the API server adds which fields were set by whom, and etcd takes 1.5 MiB
	for size := largest; ; size = size * 9 / 10 {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}, Annotations: map[string]string{"limits.blkio.noderesource.dev/containers": "* wbps=20Mi"}}}
		pod.Spec.NodeName = p.node
		pod.Spec.Containers = []corev1.Container{{Name: "c", Image: "i"}}
		pod.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}}}
		if count == 0 {
			before := pod.Size()
			add(pod, 9999)
			parts := (size - before) / (pod.Size() - before)
			pod.Labels = map[string]string{}
			pod.Spec.InitContainers, pod.Spec.Containers = nil, []corev1.Container{{Name: "c", Image: "i"}}
			for i := range parts {
				add(pod, i)
			}
			count = parts
		} else {
			for i := range count {
				add(pod, i)
			}
		}
		created, err := api.CoreV1().Pods("large").Create(p.Context(), pod, metav1.CreateOptions{})
		if err == nil {
			p.Cleanup(func() {
				_ = api.CoreV1().Pods("large").Delete(context.Background(), name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)}) // it may be gone
			})
			return created, count
		}
		if !strings.Contains(err.Error(), "too large") || size < largest/4 {
			p.Fatalf("a pod of %d bytes: %v", pod.Size(), err)
		}
		count = 0
	}
}

// patchOften patches a pod 50 times a second, or as often as the API server lets it, and returns how often that was.
func patchOften(ctx context.Context, api *kubernetes.Clientset, pod *corev1.Pod) int {
	var done atomic.Int64
	var workers sync.WaitGroup
	pace := time.NewTicker(time.Second / 50)
	defer pace.Stop()
	for range 8 {
		workers.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-ctx.Done():
					return
				case <-pace.C:
				}
				patch := fmt.Sprintf(`{"metadata": {"labels": {"changed": "%d"}}}`, i)
				if _, err := api.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err == nil {
					done.Add(1)
				}
			}
		})
	}
	workers.Wait()
	return int(done.Load())
}

// highWater returns the largest memory that the process has had, with its program's file.
func (p *part) highWater() string {
	p.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	m := regexp.MustCompile(`VmHWM:\s+(\d+) kB`).FindSubmatch(status)
	if err != nil || m == nil {
		p.Fatalf("no VmHWM: %v", err)
	}
	kb, _ := strconv.Atoi(string(m[1]))
	return fmt.Sprintf("%.1f MiB", float64(kb)/(1<<10))
}
