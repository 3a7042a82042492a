package e2e

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

// The keys of the annotations, without the scope.
const (
	limits = "limits.blkio.noderesource.dev/"
	weight = "weight.blkio.noderesource.dev/"
)

type annotations = map[string]string

// podOf is a pod of one test.
type podOf struct {
	*cri.Pod
	t *testing.T
}

// runPod runs a pod that ends with the test. The name distinguishes the pods of one test.
func runPod(t *testing.T, name string, a annotations) podOf {
	t.Helper()
	return runSandbox(t, name, 0, a)
}

// runSandbox runs one of several sandboxes of a pod.
func runSandbox(t *testing.T, name string, attempt uint32, a annotations) podOf {
	t.Helper()
	return runPodOf(t, name, cri.PodConfig{Attempt: attempt, Annotations: a})
}

// runPodOf is runPod for what else can be chosen about a pod.
func runPodOf(t *testing.T, name string, cfg cri.PodConfig) podOf {
	t.Helper()
	// A UID is part of a cgroup's name, so it has to be short and plain.
	h := fnv.New64a()
	h.Write([]byte(t.Name() + " " + name))
	uid := fmt.Sprintf("%016x-e2e", h.Sum64())
	cfg.Name, cfg.UID = name+"-"+uid[:8], uid
	p, err := node.cri.RunPod(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Remove(context.Background()); err != nil { // t's own context has ended
			t.Error(err)
		}
	})
	return podOf{Pod: p, t: t}
}

// by returns the pod as that of a subtest, which a container that does not start fails.
func (p podOf) by(t *testing.T) podOf { return podOf{Pod: p.Pod, t: t} }

// run starts a container.
func (p podOf) run(cfg cri.ContainerConfig) *cri.Container {
	p.t.Helper()
	k, err := p.Run(p.t.Context(), cfg)
	if err != nil {
		p.t.Fatal(err)
	}
	return k
}

// sleeper is a container that does nothing, with the volumes mounted at the
// paths: "/data", "ext4", "/other", "xfs".
func sleeper(name string, mounts ...string) cri.ContainerConfig {
	cfg := cri.ContainerConfig{Name: name, Args: []string{"sleep"}}
	for i := 0; i < len(mounts); i += 2 {
		cfg.Mounts = append(cfg.Mounts, cri.Mount{Path: mounts[i], Host: volumes[mounts[i+1]]})
	}
	return cfg
}

// working is a container that runs iotool on a file of the test's own below
// /data, which is on ext4.
func working(t *testing.T, name string, args ...string) cri.ContainerConfig {
	t.Helper()
	cfg := sleeper(name, "/data", "ext4")
	cfg.Args = append(args, "--path", "/data/"+filepath.Base(testFile(t, "ext4", name)))
	return cfg
}

// testFile is a file on a volume that is removed with the test.
func testFile(t *testing.T, volume, name string) string {
	t.Helper()
	file := filepath.Join(volumes[volume], strings.ReplaceAll(t.Name(), "/", "_")+"_"+name)
	t.Cleanup(func() { os.Remove(file) })
	return file
}

// ioMax are the limits of a cgroup by the kernel's names of disks.
func ioMax(path string) (map[string]string, error) {
	byNumber, err := cgroup.Dir(path).IOMax()
	if err != nil {
		return nil, err
	}
	byName := make(map[string]string)
	for number, value := range byNumber {
		name := number
		for disk, n := range node.disks {
			if n == number {
				name = disk
			}
		}
		byName[name] = value
	}
	return byName, nil
}

type disks = map[string]string // name -> "wbps=1048576"

func checkIOMax(cgroup string, want disks) error {
	got, err := ioMax(cgroup)
	if err != nil {
		return err
	}
	if !maps.Equal(got, want) {
		return fmt.Errorf("io.max of %s is %v, want %v", cgroup, got, want)
	}
	return nil
}

// wantIOMax fails the test unless io.max is this right now.
func wantIOMax(t *testing.T, cgroup string, want disks) {
	t.Helper()
	if err := checkIOMax(cgroup, want); err != nil {
		t.Error(err)
	}
}

// awaitIOMax waits for the reconciler to have made io.max this.
func awaitIOMax(t *testing.T, cgroup string, want disks) {
	t.Helper()
	eventually(t, "io.max", func() error { return checkIOMax(cgroup, want) })
}

// staysIOMax fails the test if io.max is ever another for two resyncs.
func staysIOMax(t *testing.T, cgroup string, want disks) {
	t.Helper()
	for end := time.Now().Add(2*resync + time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if err := checkIOMax(cgroup, want); err != nil {
			t.Error(err)
			return
		}
	}
}

// wantFile fails the test unless a file of a cgroup holds this.
func wantFile(t *testing.T, dir, name, want string) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(cgroup.Root, dir, name))
	if got := strings.TrimSpace(string(data)); err != nil || got != want {
		t.Errorf("%s of %s is %q (%v), want %q", name, dir, got, err, want)
	}
}
