package cgroupfs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// TestWalkAbove verifies that an attribute about a container is on the directory above. A walk finds it there,
// and reads neither removed containers nor the cgroups of a container.
func TestWalkAbove(t *testing.T) {
	const name, pod = "user.nri-blkio", "kubepods.slice/kubepods-pod1.slice"
	h, _ := newHierarchy(t, map[string]string{pod + "/c.scope/own/io.max": "", pod + "/d.scope/io.max": "", "top/io.max": ""})
	put := func(c Cgroup, xattr, value string) {
		t.Helper()
		if err := c.WriteXattr(xattr, []byte(value)); errors.Is(err, blkio.ErrNotSupported) || errors.Is(err, os.ErrPermission) {
			t.Skipf("the temporary directory has no user attributes: %v", err)
		} else if err != nil {
			t.Fatal(err)
		}
	}
	put(h.Cgroup(pod), name, "pod")
	put(h.Cgroup(pod), name+"x", "of another program")
	for _, of := range []string{pod + "/c.scope", pod + "/gone.scope", "top"} {
		dir, xattr := h.Cgroup(of).Above(name)
		put(dir, xattr, of)
	}
	put(h.Cgroup(pod+"/c.scope"), name, "forged")
	put(h.Cgroup(pod+"/c.scope/own"), name, "forged")

	var walked []string
	err := h.Walk(name, func(c Cgroup, a Attribute) error {
		id, err := c.ID()
		if err != nil || id != a.ID {
			t.Errorf("Walk reports the ID %d for %s, want %d (%v)", a.ID, c.Path(), id, err)
		}
		walked = append(walked, fmt.Sprintf("%s=%s %t", c.Path(), a.Value, a.OnParent))
		return nil
	})
	checkError(t, err, "")
	want := []string{"top=top true", pod + "=pod false", pod + "/c.scope=" + pod + "/c.scope true"}
	if diff := cmp.Diff(want, walked); diff != "" {
		t.Error(diff)
	}
	above, err := h.Cgroup(pod).ListAbove(name)
	checkError(t, err, "")
	if diff := cmp.Diff([]string{pod + "/c.scope", pod + "/gone.scope"}, paths(above)); diff != "" {
		t.Error(diff)
	}
	if above, err = h.Cgroup("gone").ListAbove(name); len(above) > 0 || !errors.Is(err, blkio.ErrGone) {
		t.Errorf("records of a removed cgroup: %v, error %v, want ErrGone", above, err)
	}
}

func paths(cgroups []Cgroup) []string {
	var out []string
	for _, c := range cgroups {
		out = append(out, c.Path())
	}
	return out
}

func TestIsContainer(t *testing.T) {
	const burstable = "kubepods.slice/kubepods-burstable.slice"
	const pod = burstable + "/kubepods-burstable-pod1_2.slice"
	containers := []string{
		pod + "/cri-containerd-a", "kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-podx.slice/crio-a.scope",
		"kubepods/pod1-2/a", "system.slice/cri-containerd-a.scope",
	}
	others := []string{
		".", "kubepods.slice", burstable, pod, pod + "/crio-a.scope/a/b", "kubepods/burstable/pod1-2",
		"kubepods/besteffort", "system.slice/podman.service", "system.slice/pod1/a",
	}
	for _, p := range containers {
		if !isContainer(p) {
			t.Errorf("%s is not taken for a container's", p)
		}
	}
	for _, p := range others {
		if isContainer(p) {
			t.Errorf("%s is taken for a container's", p)
		}
	}
}

// TestIDsOfManyOwn verifies that a container may make any number of cgroups, and costs no more by that.
func TestIDsOfManyOwn(t *testing.T) {
	const pod = "kubepods/pod1"
	files := map[string]string{pod + "/b/io.max": "", pod + "/b/own/io.max": ""}
	for i := range 3 * maxOwn {
		files[fmt.Sprintf("%s/a/%d/io.max", pod, i)] = ""
	}
	deep := pod + "/a/0" + strings.Repeat("/x", 50)
	files[filepath.Join(deep, "io.max")] = ""
	h, _ := newHierarchy(t, files)
	ids, err := h.IDs()
	checkError(t, err, "")
	own, found := 0, map[string]bool{}
	for _, p := range ids {
		found[p] = true
		if strings.HasPrefix(p, pod+"/a/") {
			own++
		}
	}
	if own != maxOwn || !found[pod+"/b/own"] || !found[pod+"/a"] {
		t.Errorf("%d of one container; others: %t", own, found[pod+"/b/own"])
	}
}
