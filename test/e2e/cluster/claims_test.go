package cluster

import (
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nri-blkio/nri-blkio/test/e2e/cgroup"
	"github.com/nri-blkio/nri-blkio/test/e2e/cri"
	"github.com/nri-blkio/nri-blkio/test/e2e/lab"
)

// localVolume returns a manifest of a local volume for the claim of the same name. mode is Filesystem or Block.
func localVolume(name, mode, path string) string {
	return fmt.Sprintf(`---
apiVersion: v1
kind: PersistentVolume
metadata: {name: pv-%[1]s}
spec:
  capacity: {storage: 100Mi}
  accessModes: [ReadWriteOnce]
  persistentVolumeReclaimPolicy: Retain
  storageClassName: %[1]s
  volumeMode: %[2]s
  local: {path: %[3]s}
  %[4]s
`, name, mode, path, localNodes)
}

// claimsManifest has two claims of local volumes with limits of their own, a class, and a pod without annotations. The container
// "files" has a claim with a filesystem, "block" one that is a raw block device.
const claimsManifest = `---
apiVersion: v1
kind: PersistentVolumeClaim
metadata:
  name: files
  namespace: default
  annotations: {limits.blkio.noderesource.dev: "wbps=8Mi"}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 100Mi}}, storageClassName: files}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata:
  name: block
  namespace: default
  annotations: {limits.blkio.noderesource.dev: "wbps=4Mi wiops=200"}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 100Mi}}, storageClassName: block, volumeMode: Block}
---
apiVersion: storage.k8s.io/v1
kind: VolumeAttributesClass
metadata: {name: silver}
driverName: another.example.com
parameters: {blkio.noderesource.dev/riops: "500", wbps: "1Mi"}
---
apiVersion: v1
kind: Pod
metadata: {name: claims, namespace: default}
spec:
  hostNetwork: true
  terminationGracePeriodSeconds: 1
  containers:
  - name: files
    image: %[1]s
    imagePullPolicy: Never
    args: [sleep, --seconds, "100000"]
    volumeMounts: [{name: data, mountPath: /data}]
  - name: block
    image: %[1]s
    imagePullPolicy: Never
    args: [sleep, --seconds, "100000"]
    volumeDevices: [{name: raw, devicePath: /dev/xvda}]
  volumes:
  - {name: data, persistentVolumeClaim: {claimName: files}}
  - {name: raw, persistentVolumeClaim: {claimName: block}}
`

// claims is a running pod with limited claims, which the test changes at the API server.
type claims struct {
	cluster
	files, block *cri.Container
}

// newClaims runs the pod. The claim "files" is on vdd, "block" on vdg.
func newClaims(t *testing.T, c cluster, device string) *claims {
	t.Helper()
	c.apply(localVolume("files", "Filesystem", lab.Volumes["xfs"]) + localVolume("block", "Block", device) + fmt.Sprintf(claimsManifest, cri.Image))
	return &claims{c, c.container("claims", "files"), c.container("claims", "block")}
}

// await waits until the containers have these limits on the disks of their claims, "" for none.
func (l *claims) await(what, files, block string) {
	l.Helper()
	began := time.Now()
	lab.Eventually(l.T, what, func() error { return l.check(files, block) })
	l.Logf("%s: in force after %v", what, time.Since(began).Round(10*time.Millisecond))
}

func (l *claims) check(files, block string) error {
	want := func(disk, value string) lab.Disks {
		if value == "" {
			return lab.Disks{}
		}
		return lab.Disks{disk: value}
	}
	return errors.Join(lab.CheckIOMax(l.files.Cgroup, want("vdd", files)), lab.CheckIOMax(l.block.Cgroup, want("vdg", block)))
}

// annotate changes the limits of a claim.
func (c cluster) annotate(claim, value string) {
	c.Helper()
	c.change("/api/v1/namespaces/default/persistentvolumeclaims/"+claim, "annotations", "limits.blkio.noderesource.dev"+value)
}

// awaitStatus waits for a text in the output of status about the pod.
func (l *claims) awaitStatus(want string) {
	l.Helper()
	lab.Eventually(l.T, "status has "+want, func() error {
		out, err := lab.Command(l.T, "status", "-o", "wide", "--pod", "default/claims")
		if err == nil && !strings.Contains(out, want) {
			return fmt.Errorf("status is\n%s", out)
		}
		return err
	})
}

// TestClaims verifies that limits of claims apply to mounted and to raw block volumes, that they and those of a class change while
// the pod runs, that one grows with the claim, that wrong ones change nothing, and that they stay in force without the cluster part and over a restart.
func TestClaims(t *testing.T) {
	device := lab.NewKit(t, 1).One()
	lab.Know(t, "vdg")
	exchange := filepath.Join(t.TempDir(), "exchange")
	p := lab.StartPlugin(t, "--only", "limits", "--exchange-dir", exchange)
	c := startCluster(t)
	part := startClusterPart(t, exchange)
	l := newClaims(t, c, device)
	l.await("created", "wbps=8388608", "wbps=4194304 wiops=200")
	l.awaitStatus("claim files")

	l.annotate("files", "=wbps=2Mi")
	l.annotate("block", "=wbps=9Mi rbps=1Mi")
	l.await("edited", "wbps=2097152", "rbps=1048576 wbps=9437184")
	l.kubectl("", "patch", "pvc", "files", "--type=merge", "-p", `{"spec": {"volumeAttributesClassName": "silver"}}`)
	l.await("a class", "wbps=2097152 riops=500", "rbps=1048576 wbps=9437184")
	l.awaitStatus("claim files, class silver")

	l.annotate("files", "=wpbs=7Mi")
	l.awaitStatus(`unknown key "wpbs"`)
	if err := l.check("wbps=2097152 riops=500", "rbps=1048576 wbps=9437184"); err != nil {
		t.Errorf("wrong: %v", err)
	}
	l.annotate("files", "=wiops=100+50/Gi")
	l.await("by size", "wbps=1048576 riops=500 wiops=150", "rbps=1048576 wbps=9437184")
	l.kubectl("", "patch", "pvc", "files", "--subresource=status", "--type=merge", "-p", `{"status": {"capacity": {"storage": "3Gi"}}}`)
	l.await("expanded", "wbps=1048576 riops=500 wiops=250", "rbps=1048576 wbps=9437184")
	l.annotate("files", "-")
	l.await("the class alone", "wbps=1048576 riops=500", "rbps=1048576 wbps=9437184")

	part.Kill(t)
	p.Kill(t)
	p = lab.StartPlugin(t, "--only", "limits", "--exchange-dir", filepath.Join(t.TempDir(), "another"))
	lab.StaysIOMax(t, l.files.Cgroup, lab.Disks{"vdd": "wbps=1048576 riops=500"})
	lab.WantIOMax(t, l.block.Cgroup, lab.Disks{"vdg": "rbps=1048576 wbps=9437184"})
	p.Kill(t)
	lab.StartPlugin(t, "--only", "limits", "--exchange-dir", exchange)
	startClusterPart(t, exchange)
	l.annotate("block", "-")
	l.await("removed", "wbps=1048576 riops=500", "")
}

// namedVolumeManifest is a pod whose annotations name a volume that is a claim.
const namedVolumeManifest = `---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: named, namespace: default}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 100Mi}}, storageClassName: named}
---
apiVersion: v1
kind: Pod
metadata:
  name: named
  namespace: default
  annotations: {limits.blkio.noderesource.dev/containers: "@data wbps=3Mi", limits.blkio.noderesource.dev/pod-total: "@data riops=700"}
spec:
  hostNetwork: true
  terminationGracePeriodSeconds: 1
  containers:
  - name: a
    image: %[1]s
    imagePullPolicy: Never
    args: [sleep, --seconds, "100000"]
    volumeMounts: [{name: data, mountPath: /data}]
  volumes:
  - {name: data, persistentVolumeClaim: {claimName: named}}
`

// TestNamedVolume verifies that a pod whose annotations name a volume that is a claim is rejected with the reason while no cluster part has
// described it, that it starts once one has, and that a lower limit of another program on the pod's cgroup stays.
func TestNamedVolume(t *testing.T) {
	exchange := filepath.Join(t.TempDir(), "exchange")
	lab.StartPlugin(t, "--only", "limits", "--exchange-dir", exchange)
	c := startCluster(t)
	c.apply(localVolume("named", "Filesystem", lab.Volumes["xfs"]) + fmt.Sprintf(namedVolumeManifest, cri.Image))
	lab.Within(t, clusterDeadline, "the pod is rejected", func() error {
		_, message, err := lab.Waiting(t.Context(), "named", "a")
		if err == nil && !strings.Contains(message, "the volumes of the pod are not known yet") {
			err = errors.New(message)
		}
		return err
	})
	startClusterPart(t, exchange)
	a := c.container("named", "a")
	pod := path.Dir(a.Cgroup)
	lab.AwaitIOMax(t, a.Cgroup, lab.Disks{"vdd": "wbps=3145728"})
	lab.AwaitIOMax(t, pod, lab.Disks{"vdd": "wbps=3145728 riops=700"})

	if err := cgroup.Dir(pod).SetIOMax(lab.Node.Disks["vdd"] + " rbps=5000000 wiops=77"); err != nil {
		t.Fatal(err)
	}
	lab.StaysIOMax(t, pod, lab.Disks{"vdd": "rbps=5000000 wbps=3145728 riops=700 wiops=77"})
	lab.Eventually(t, "status shows the limits of the other program", func() error {
		out, err := lab.Command(t, "status", "--pod", "default/named")
		if err == nil && !strings.Contains(out, "wiops=77 on disk vdd") {
			return errors.New(out)
		}
		return err
	})
}
