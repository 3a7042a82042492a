package cluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nri-blkio/nri-blkio/test/e2e/cri"
	"github.com/nri-blkio/nri-blkio/test/e2e/lab"
)

// machineManifest is the pod of a virtual machine, and a limited claim of a raw block volume. The pod is privileged, so that it may use a
// device that is made in it.
const machineManifest = `---
apiVersion: v1
kind: PersistentVolumeClaim
metadata:
  name: plugged
  namespace: default
  annotations: {limits.blkio.noderesource.dev: "wbps=2Mi"}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 100Mi}}, storageClassName: plugged, volumeMode: Block}
---
apiVersion: v1
kind: Pod
metadata: {name: machine, namespace: default}
spec:
  hostNetwork: true
  terminationGracePeriodSeconds: 1
  containers:
  - name: compute
    image: %[1]s
    imagePullPolicy: Never
    args: [sleep, --seconds, "100000"]
    securityContext: {privileged: true}
`

// attachmentManifest is the pod that KubeVirt makes to plug the volume in: the pod of the machine controls it.
const attachmentManifest = `---
apiVersion: v1
kind: Pod
metadata:
  name: hp-volume
  namespace: default
  ownerReferences: [{apiVersion: v1, kind: Pod, name: machine, uid: %[2]s, controller: true, blockOwnerDeletion: true}]
spec:
  hostNetwork: true
  terminationGracePeriodSeconds: 1
  containers:
  - name: hotplug-disk
    image: %[1]s
    imagePullPolicy: Never
    args: [sleep, --seconds, "100000"]
    volumeDevices: [{name: data, devicePath: /path/data/uid}]
  volumes:
  - {name: data, persistentVolumeClaim: {claimName: plugged}}
`

// container waits for a container of a pod to run.
func (c cluster) container(pod, name string) (found *cri.Container) {
	c.Helper()
	lab.Within(c.T, clusterDeadline, "container "+name+" runs", func() error {
		running, err := lab.Node.CRI.Running(c.Context(), "io.kubernetes.pod.name", pod)
		if err != nil {
			return err
		}
		if found = running[name]; found == nil {
			return errors.New("not yet")
		}
		return nil
	})
	return found
}

// TestAttachmentPod verifies that the limits of a claim apply to the pod that controls the claim's pod, and that uses the disk by a device
// node: once the second pod runs, after an edit of the claim, without the second pod, and over a restart of the plugin.
func TestAttachmentPod(t *testing.T) {
	device := lab.NewKit(t, 1).One()
	lab.Know(t, "vdg")
	number, err := os.ReadFile(filepath.Join("/sys/class/block", lab.DiskBehind(t, device), "dev"))
	if err != nil {
		t.Fatal(err)
	}
	exchange := filepath.Join(t.TempDir(), "exchange")
	p := lab.StartPlugin(t, "--only", "limits", "--exchange-dir", exchange)
	c := startCluster(t)
	startClusterPart(t, exchange)
	c.apply(localVolume("plugged", "Block", device) + fmt.Sprintf(machineManifest, cri.Image))
	compute := c.container("machine", "compute")
	lab.WantIOMax(t, compute.Cgroup, lab.Disks{})

	uid := c.kubectl("", "get", "pod", "machine", "-o", "jsonpath={.metadata.uid}")
	c.apply(fmt.Sprintf(attachmentManifest, cri.Image, uid))
	c.container("hp-volume", "hotplug-disk")
	began := time.Now()
	lab.AwaitIOMax(t, compute.Cgroup, lab.Disks{"vdg": "wbps=2097152"})
	t.Logf("in force %v after the second pod was seen to run", time.Since(began).Round(10*time.Millisecond))
	lab.MakeDevice(t, compute, "/dev/plugged", string(number))
	began = time.Now()
	if _, err := compute.Exec(t.Context(), 2*lab.Deadline, "/bin/iotool", "write", "--direct", "--path", "/dev/plugged", "--size", "12Mi"); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took < 5*time.Second {
		t.Errorf("12 MiB took %v at 2 MiB/s", took)
	}

	c.annotate("plugged", "=wbps=4Mi riops=700")
	edited := lab.Disks{"vdg": "wbps=4194304 riops=700"}
	lab.AwaitIOMax(t, compute.Cgroup, edited)
	c.kubectl("", "delete", "pod", "hp-volume", "--timeout="+clusterDeadline.String())
	lab.StaysIOMax(t, compute.Cgroup, edited)
	p.Kill(t)
	lab.StartPlugin(t, "--only", "limits", "--exchange-dir", exchange)
	lab.StaysIOMax(t, compute.Cgroup, edited)
}
