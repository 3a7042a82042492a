package deploy

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nri-blkio/nri-blkio/test/e2e/lab"
)

// kubeletDir is the kubelet's root directory.
const kubeletDir = "/var/lib/kubelet"

// TestKubeletLink verifies that volumes of a pod are found by name, on the disk that they are on, if the kubelet's directory or that of
// its pods is a symbolic link to another disk, and that check agrees.
//
//e2e:proof
func TestKubeletLink(t *testing.T) {
	for _, dir := range []string{kubeletDir, kubeletDir + "/pods"} {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			link(t, dir, "/mnt/ext4/moved-"+filepath.Base(dir))
			lab.StartPlugin(t)
			pod := staticPod{
				name:        "link",
				annotations: lab.Annotations{lab.Limits + "container.c": "@data wbps=1Mi"},
				containers:  ctr("c", lab.Forever, dataDir), volume: "emptyDir: {}",
			}
			startKubelet(t, []staticPod{pod})
			inForce(lab.LimitedDisk, map[string]lab.Disks{"c": lab.LimitedDisk})(t, pod)
			out, err := lab.Command(t, "check", "-f", filepath.Join(manifests, pod.name+".yaml"), "-o", "wide")
			if err != nil || !strings.Contains(out, lab.Node.Disks["vdb"]+" wbps=1048576") {
				t.Errorf("check: %v\n%s", err, out)
			}
		})
	}
}

// link moves a directory of the kubelet to another disk until the end of the test, and leaves a link in its place.
func link(t *testing.T, dir, to string) {
	t.Helper()
	move := func(from, to string) {
		if out, err := exec.Command("mv", from, to).CombinedOutput(); err != nil {
			t.Fatalf("move %s: %v: %s", from, err, out)
		}
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	move(dir, to)
	if err := os.Symlink(to, dir); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.Remove(dir); err != nil {
			t.Fatal(err)
		}
		move(to, dir)
	})
}
