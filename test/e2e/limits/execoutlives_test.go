package limits

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nri-blkio/nri-blkio/test/e2e/cgroup"
	"github.com/nri-blkio/nri-blkio/test/e2e/cri"
	"github.com/nri-blkio/nri-blkio/test/e2e/lab"
)

// testExecOutlives verifies that a process that an exec has started is limited like the container's first one,
// also after the first one has ended. In a PID namespace of its own the kernel ends the others with the first
// one. If the containers of a pod share a PID namespace (shareProcessNamespace), the runtime has to end them.
func testExecOutlives(t *testing.T) {
	for name, own := range map[string]bool{"shared": false, "own": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pod := lab.RunPodOf(t, name, cri.PodConfig{Annotations: lab.Limited, OwnProcesses: own})
			k := pod.MustRun(lab.Sleeper("c", "/data", "ext4"))
			first := processes(t, k)
			if len(first) != 1 {
				t.Fatalf("the container has processes %v, want one", first)
			}
			file := lab.File(t, "ext4", "f")
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				// Its error is that it is killed.
				_, _ = k.Exec(t.Context(), 2*lab.Deadline, "/bin/iotool", "write", "--path", "/data/"+filepath.Base(file), "--block", "64Ki", "--span", "1Mi", "--sync", "64Ki")
			}()
			lab.Eventually(t, "the exec writes", func() error {
				_, err := os.Stat(file)
				return err
			})
			if all := processes(t, k); len(all) != 2 {
				t.Errorf("the container has processes %v, want the first one and the exec", all)
			}
			lab.WantIOMax(t, k.Cgroup, lab.LimitedDisk)
			if err := unix.Kill(first[0], unix.SIGTERM); err != nil {
				t.Fatal(err)
			}
			if cri.IsCRIO() && !own { // it leaves the exec alone, which stays limited
				lab.StaysIOMax(t, k.Cgroup, lab.LimitedDisk)
				for _, pid := range processes(t, k) {
					if err := unix.Kill(pid, unix.SIGKILL); err != nil {
						t.Error(err)
					}
				}
			}
			lab.Eventually(t, "the cgroup is removed", func() error {
				if _, err := os.Stat(filepath.Join(cri.CgroupRoot, k.Cgroup)); !errors.Is(err, os.ErrNotExist) {
					return errors.Join(errors.New("the cgroup exists"), err)
				}
				return nil
			})
			<-ended
			// Others sync the same filesystem at the same time, and each sync is followed by a pause. On a busy machine 3*deadline was
			// too short once.
			lab.Within(t, 6*lab.Deadline, "io.max", func() error { return lab.CheckIOMax(pod.Cgroup, nil) })
		})
	}
}

// processes are those of a container, by their numbers on the node.
func processes(t *testing.T, k *cri.Container) []int {
	t.Helper()
	pids, err := cgroup.Dir(k.Cgroup).PIDs()
	if err != nil {
		t.Fatal(err)
	}
	return pids
}
