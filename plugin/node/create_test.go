package node

import (
	"errors"
	"testing"
)

// TestPodRemovedDuringCreate verifies that the creation of a container of a pod that is removed meanwhile does not go on until its deadline.
func TestPodRemovedDuringCreate(t *testing.T) {
	h, _ := tree(t, podCgroup)
	n := newNode(t, h)
	sb := sandbox(annotationsOf(limitsKey+"containers", "rootfs wbps=1Mi"))
	during := func() { n.RemovedPod(sb.ID) }
	n.storage = interrupted{n.storage, &during}
	if _, err := n.create(t.Context(), sb, ctr("x"), false); !errors.Is(err, errRemoved) {
		t.Errorf("create: %v", err)
	}
}

// TestContainerWithoutCgroup verifies that the error of a container whose cgroup is not known stays the same, also after another one.
func TestContainerWithoutCgroup(t *testing.T) {
	h, _ := tree(t, podCgroup)
	n := newNode(t, h)
	broken := true
	n.storage = flaky{disks{twoDisks}, &broken}
	sb, c := sandbox(annotationsOf(limitsKey+"containers", "rootfs wbps=1Mi")), ctr("x")
	c.Cgroup = "bad"
	want := `limit container x: cgroups path "bad": neither SLICE:PREFIX:ID nor absolute`
	for range 3 {
		err := n.start(t.Context(), sb, c, true)
		if !broken && (err == nil || err.Error() != want) {
			t.Errorf("got %v, want %s", err, want)
		}
		broken = false
	}
}
