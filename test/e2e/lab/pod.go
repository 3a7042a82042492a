package lab

import (
	"context"
	"fmt"
	"hash/fnv"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nri-blkio/nri-blkio/test/e2e/cgroup"
	"github.com/nri-blkio/nri-blkio/test/e2e/cri"
)

// Limited is the limit in most of these tests, on /data, which is ext4.
var (
	Limited     = Annotations{Limits + "containers": "/data wbps=1Mi"}
	LimitedDisk = Disks{"vdb": "wbps=1048576"}
	TwiceDisk   = Disks{"vdb": "wbps=2097152"} // the backstop of two
)

// The keys of the annotations, without the scope.
const (
	Limits = "limits.blkio.noderesource.dev/"
	Weight = "weight.blkio.noderesource.dev/"
)

// Annotations are those of a pod.
type Annotations = map[string]string

// PodOf is a pod of one test.
type PodOf struct {
	*cri.Pod
	t *testing.T
}

// RunPod runs a pod that ends with the test. The name distinguishes the pods of one test.
func RunPod(t *testing.T, name string, a Annotations) PodOf {
	t.Helper()
	return RunSandbox(t, name, 0, a)
}

// RunSandbox runs one of several sandboxes of a pod.
func RunSandbox(t *testing.T, name string, attempt uint32, a Annotations) PodOf {
	t.Helper()
	return RunPodOf(t, name, cri.PodConfig{Attempt: attempt, Annotations: a})
}

// RunPodOf is RunPod for what else can be chosen about a pod.
func RunPodOf(t *testing.T, name string, cfg cri.PodConfig) PodOf {
	t.Helper()
	// A UID is part of a cgroup's name, so it has to be short and plain.
	h := fnv.New64a()
	h.Write([]byte(t.Name() + " " + name))
	uid := fmt.Sprintf("%016x-e2e", h.Sum64())
	cfg.Name, cfg.UID = name+"-"+uid[:8], uid
	p, err := Node.CRI.RunPod(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Remove(context.Background()); err != nil { // t's own context has ended
			t.Error(err)
		}
	})
	return PodOf{Pod: p, t: t}
}

// By returns the pod as that of a subtest, which a container that does not start fails.
func (p PodOf) By(t *testing.T) PodOf { return PodOf{Pod: p.Pod, t: t} }

// MustRun starts a container.
func (p PodOf) MustRun(cfg cri.ContainerConfig) *cri.Container {
	p.t.Helper()
	k, err := p.Run(p.t.Context(), cfg)
	if err != nil {
		p.t.Fatal(err)
	}
	return k
}

// Sleeper is a container that does nothing, with the volumes mounted at the
// paths: "/data", "ext4", "/other", "xfs".
func Sleeper(name string, mounts ...string) cri.ContainerConfig {
	cfg := cri.ContainerConfig{Name: name, Args: []string{"sleep"}}
	for i := 0; i < len(mounts); i += 2 {
		cfg.Mounts = append(cfg.Mounts, cri.Mount{Path: mounts[i], Host: Volumes[mounts[i+1]]})
	}
	return cfg
}

// Working is a container that runs iotool on a file of the test's own below
// /data, which is on ext4.
func Working(t *testing.T, name string, args ...string) cri.ContainerConfig {
	t.Helper()
	cfg := Sleeper(name, "/data", "ext4")
	cfg.Args = append(args, "--path", "/data/"+filepath.Base(File(t, "ext4", name)))
	return cfg
}

// File is a file on a volume that is removed with the test.
func File(t *testing.T, volume, name string) string {
	t.Helper()
	file := filepath.Join(Volumes[volume], strings.ReplaceAll(t.Name(), "/", "_")+"_"+name)
	t.Cleanup(func() { os.Remove(file) })
	return file
}

// IOMax are the limits of a cgroup by the kernel's names of disks.
func IOMax(path string) (map[string]string, error) {
	byNumber, err := cgroup.Dir(path).IOMax()
	if err != nil {
		return nil, err
	}
	byName := make(map[string]string)
	for number, value := range byNumber {
		name := number
		for disk, n := range Node.Disks {
			if n == number {
				name = disk
			}
		}
		byName[name] = value
	}
	return byName, nil
}

// Disks are limits by the kernel's names of disks: vdb -> "wbps=1048576".
type Disks = map[string]string

// CheckIOMax returns an error unless io.max of a cgroup is this right now.
func CheckIOMax(cgroup string, want Disks) error {
	got, err := IOMax(cgroup)
	if err != nil {
		return err
	}
	if !maps.Equal(got, want) {
		return fmt.Errorf("io.max of %s is %v, want %v", cgroup, got, want)
	}
	return nil
}

// WantIOMax fails the test unless io.max is this right now.
func WantIOMax(t *testing.T, cgroup string, want Disks) {
	t.Helper()
	if err := CheckIOMax(cgroup, want); err != nil {
		t.Error(err)
	}
}

// AwaitIOMax waits for the reconciler to have made io.max this.
func AwaitIOMax(t *testing.T, cgroup string, want Disks) {
	t.Helper()
	Eventually(t, "io.max", func() error { return CheckIOMax(cgroup, want) })
}

// StaysIOMax fails the test if io.max is ever another for two resyncs.
func StaysIOMax(t *testing.T, cgroup string, want Disks) {
	t.Helper()
	for end := time.Now().Add(2*Resync + time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if err := CheckIOMax(cgroup, want); err != nil {
			t.Error(err)
			return
		}
	}
}

// WantFile fails the test unless a file of a cgroup holds this.
func WantFile(t *testing.T, dir, name, want string) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(cgroup.Root, dir, name))
	if got := strings.TrimSpace(string(data)); err != nil || got != want {
		t.Errorf("%s of %s is %q (%v), want %q", name, dir, got, err, want)
	}
}
