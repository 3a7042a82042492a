package shares

import (
	"os"
	"path/filepath"
	"testing"
)

// TestComesAndGoes covers pods and containers that begin and end meanwhile, also the last one.
func TestComesAndGoes(t *testing.T) {
	k := newKernel(t, nil)
	k.pass(vda)
	k.make(a, "default 200\n")
	k.now = k.now.Add(allEvery)
	k.pass(vda)
	k.make(podA+"/cri-a2.scope", "default 300\n")
	k.use(vda, a, podA+"/cri-a2.scope")
	k.pass(vda) // the first read of the second container
	k.use(vda, a, podA+"/cri-a2.scope")
	k.pass(vda)
	k.want(map[string]string{
		a: "default 200", podA + "/cri-a2.scope": "default 300",
		burstable: "default 100, 254:0 500", podA: "default 100, 254:0 500",
	})
	if err := os.RemoveAll(filepath.Join(k.dir, "kubepods.slice")); err != nil {
		t.Fatal(err)
	}
	if shares := k.pass(vda); len(shares[vda]) > 3 {
		t.Errorf("shares %v", shares)
	}
	k.now = k.now.Add(allEvery)
	if shares := k.pass(vda); len(shares[vda]) != 0 {
		t.Errorf("shares of what is gone: %v", shares)
	}
}

// TestCgroupfsDriver covers the other layout of pods, below another cgroup.
func TestCgroupfsDriver(t *testing.T) {
	k := newKernel(t, map[string]string{"kubelet/kubepods/besteffort/pod1/c": "default 300\n", "kubelet/kubepods/pod2/d": "default 200\n"})
	k.pass(vda)
	k.want(map[string]string{
		"kubelet/kubepods/besteffort": "default 100, 254:0 300", "kubelet/kubepods/besteffort/pod1": "default 100, 254:0 300",
		"kubelet/kubepods/besteffort/pod1/c": "default 300", "kubelet/kubepods/pod2": "default 100, 254:0 200", "kubelet/kubepods/pod2/d": "default 200",
	})
}

// TestFirstPod covers a node without pods, which has no cgroup above pods. The first pod makes it.
func TestFirstPod(t *testing.T) {
	k := newKernel(t, nil)
	k.pass(vda)
	k.make(a, "default 200\n")
	k.pass(vda)
	k.want(map[string]string{a: "default 200", podA: "default 100, 254:0 200", burstable: "default 100, 254:0 200"})
}

// TestReplacedChild verifies that a container that replaces another one is found with the next I/O, although
// the number of children is the same.
func TestReplacedChild(t *testing.T) {
	k := threePods(t)
	k.pass(vda)
	if err := os.RemoveAll(filepath.Join(k.dir, a)); err != nil {
		t.Fatal(err)
	}
	const other = podA + "/cri-other.scope"
	k.make(other, "default 400\n")
	k.use(vda, other)
	k.pass(vda)
	k.use(vda, other)
	k.pass(vda)
	if got, want := k.read(podA+"/io.weight"), "default 100\n254:0 400\n"; got != want {
		t.Errorf("the pod has %q, want %q", got, want)
	}
}

// TestBeginsMeanwhile verifies that a cgroup is active if one below it is. The kernel counts I/O in both, but the one below is read later.
func TestBeginsMeanwhile(t *testing.T) {
	k := newKernel(t, map[string]string{a: "default 200\n"})
	k.use(vda, a)
	k.pass(vda)
	above := []string{"kubepods.slice", burstable}
	before := k.read(burstable + "/io.stat")
	k.use(vda, a)
	for _, p := range above { // when they were read, they had changed, but not on vda
		k.put(p+"/io.stat", before+"254:16 rbytes=0 wbytes=0 rios=1 wios=0 dbytes=0 dios=0\n")
	}
	k.pass(vda)
	for c := k.keeper.top[0].onDisk(vda, k.now, nil, nil); ; c = c.Children[0] {
		if !c.Active {
			t.Errorf("%s is not active", c.Path)
		}
		if c.Path == a {
			break
		}
	}
}
