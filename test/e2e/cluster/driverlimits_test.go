package cluster

import (
	"crypto/sha256"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/nri-blkio/nri-blkio/test/e2e/cri"
	"github.com/nri-blkio/nri-blkio/test/e2e/csi"
	"github.com/nri-blkio/nri-blkio/test/e2e/lab"
)

// drivenManifest is a pod with a volume of a storage driver.
const drivenManifest = `---
apiVersion: storage.k8s.io/v1
kind: CSIDriver
metadata: {name: %[1]s}
spec: {attachRequired: false, podInfoOnMount: true, volumeLifecycleModes: [Persistent, Ephemeral]}
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: pv-driven}
spec:
  capacity: {storage: 100Mi}
  accessModes: [ReadWriteOnce]
  persistentVolumeReclaimPolicy: Retain
  storageClassName: driven
  csi: {driver: %[1]s, volumeHandle: driven, fsType: ext4}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: driven, namespace: default}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 100Mi}}, storageClassName: driven}
---
apiVersion: v1
kind: Pod
metadata: {name: driven, namespace: default}
spec:
  hostNetwork: true
  terminationGracePeriodSeconds: 1
  containers:
  - name: a
    image: %[2]s
    imagePullPolicy: Never
    args: [sleep, --seconds, "100000"]
    volumeMounts: [{name: data, mountPath: /data}]
  volumes:
  - {name: data, persistentVolumeClaim: {claimName: driven}}
`

// driverAttachment is the VolumeAttachment of that volume, which the attacher of the driver makes elsewhere.
const driverAttachment = `---
apiVersion: storage.k8s.io/v1
kind: VolumeAttachment
metadata: {name: %s}
spec: {attacher: %s, nodeName: node, source: {persistentVolumeName: pv-driven}}
`

// TestDriverLimits verifies that the limits in the metadata of a VolumeAttachment apply to the pod that has the volume, that they change while
// it runs, and that the annotation of the claim is before them.
func TestDriverLimits(t *testing.T) {
	k := lab.NewKit(t, 2)
	group := k.VolumeGroup()
	disk := lab.DiskBehind(t, k.Logical(group, "driven", "-L", "100M"))
	lab.Know(t, disk)
	exchange := filepath.Join(t.TempDir(), "exchange")
	lab.StartPlugin(t, "--only", "limits", "--exchange-dir", exchange)
	driver, err := csi.Start(csiDriver, group)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(driver.Stop)
	c := startCluster(t)
	startClusterPart(t, exchange, "--driver-limits")
	c.apply(fmt.Sprintf(drivenManifest, csiDriver, cri.Image))
	a := c.container("driven", "a")
	lab.WantIOMax(t, a.Cgroup, lab.Disks{})

	name := fmt.Sprintf("csi-%x", sha256.Sum256([]byte("driven"+csiDriver+"node")))
	c.apply(fmt.Sprintf(driverAttachment, name, csiDriver))
	await := func(metadata, want string) {
		t.Helper()
		c.kubectl("", "patch", "volumeattachment", name, "--subresource=status", "--type=merge",
			"-p", `{"status": {"attached": true, "attachmentMetadata": {`+metadata+`}}}`)
		began := time.Now()
		lab.AwaitIOMax(t, a.Cgroup, lab.Disks{disk: want})
		t.Logf("%s: in force after %v", want, time.Since(began).Round(10*time.Millisecond))
	}
	await(`"qos.linbit.com/wbps": "3145728", "qos.linbit.com/wiops": "0"`, "wbps=3145728")
	await(`"qos.linbit.com/wbps": "2097152", "qos.linbit.com/riops": "300"`, "wbps=2097152 riops=300")
	c.annotate("driven", "=wbps=1Mi")
	lab.AwaitIOMax(t, a.Cgroup, lab.Disks{disk: "wbps=1048576 riops=300"})
}
