package cgroupfs

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestRunningPods verifies that a pod is found once a container runs beside its sandbox, with both cgroup drivers, and that
// neither the kubelet's pods of a nested node nor the cgroups that a container makes are taken for pods.
func TestRunningPods(t *testing.T) {
	dir := t.TempDir()
	for name, populated := range map[string]string{
		"kubepods.slice/kubepods-poda.slice/cri-containerd-1.scope":                               "1",
		"kubepods.slice/kubepods-poda.slice/cri-containerd-2.scope":                               "1",
		"kubepods.slice/kubepods-podsandbox.slice/cri-containerd-3.scope":                         "1",
		"kubepods.slice/kubepods-podsandbox.slice/crio-conmon-3.scope":                            "1",
		"kubepods.slice/kubepods-podended.slice/cri-containerd-4.scope":                           "1",
		"kubepods.slice/kubepods-podended.slice/cri-containerd-5.scope":                           "0",
		"kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podb.slice/crio-6.scope":      "1",
		"kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podb.slice/crio-7.scope":      "1",
		"kubepods.slice/kubepods-podsandbox.slice/cri-containerd-3.scope/kubepods/podforged/x":    "1",
		"kubepods.slice/kubepods-podsandbox.slice/cri-containerd-3.scope/kubepods/podforged/y":    "1",
		"kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-podc.slice/cri-containerd-8.scope": "1",
		"kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-podc.slice/cri-containerd-9.scope": "1",
		"kubepods/besteffort/podd/10":                  "1",
		"kubepods/besteffort/podd/11":                  "1",
		"docker/nested/kubepods/pode/12":               "1",
		"docker/nested/kubepods/pode/13":               "1",
		"system.slice/docker.service/kubepods/podf/14": "1",
		"system.slice/docker.service/kubepods/podf/15": "1",
	} {
		at := filepath.Join(dir, name)
		if err := os.MkdirAll(at, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(at, "cgroup.events"), []byte("populated "+populated+"\nfrozen 0\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "cgroup.controllers"), []byte("io\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	h, err := OpenTree(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	found, err := h.RunningPods()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range found {
		got = append(got, PodUID(c.Path()))
	}
	if diff := cmp.Diff([]string{"c", "d", "b", "a"}, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
