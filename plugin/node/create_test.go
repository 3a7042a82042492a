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
