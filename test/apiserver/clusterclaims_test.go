package apiserver

import (
	"crypto/sha256"
	"fmt"
	"testing"

	"github.com/nri-blkio/nri-blkio/plugin/poddoc"
	"github.com/nri-blkio/nri-blkio/plugin/podfacts"
	"github.com/nri-blkio/nri-blkio/policy"
)

// attach creates the volume pv-9 of the claim data in the namespace claims, and its attachment to a node. It returns the name of that.
func (p *part) attach(node string) string {
	p.Helper()
	const driver, namespace, claim, volume = "csi.example.com", "claims", "data", "pv-9"
	name := fmt.Sprintf("csi-%x", sha256.Sum256([]byte("handle-"+volume+driver+node)))
	p.kubectl(fmt.Sprintf(`{apiVersion: v1, kind: PersistentVolume, metadata: {name: %[1]s}, spec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce], storageClassName: fast,
claimRef: {namespace: %[2]s, name: %[3]s}, csi: {driver: %[4]s, volumeHandle: handle-%[1]s}}}`, volume, namespace, claim, driver), "apply", "-f", "-")
	p.kubectl(fmt.Sprintf(`{apiVersion: storage.k8s.io/v1, kind: VolumeAttachment, metadata: {name: %s}, spec: {attacher: %s, nodeName: %s, source: {persistentVolumeName: %s}}}`,
		name, driver, node, volume), "apply", "-f", "-")
	return name
}

// TestClusterClaims verifies that a claim that is expanded arrives with its size, and that the metadata of the attachment of its
// volume to this node arrives, and of no other one.
func TestClusterClaims(t *testing.T) {
	p := newPart(t, "worker-9")
	// As the chart does with cluster.driverLimits.
	const role = "driver-limits"
	p.kubectl(fmt.Sprintf(`{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: %[1]s}, rules: [
{apiGroups: [""], resources: [persistentvolumes], verbs: [list, watch]}, {apiGroups: [storage.k8s.io], resources: [volumeattachments], verbs: [list, watch]}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: %[1]s}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: %[1]s},
subjects: [{kind: ServiceAccount, name: %[2]s, namespace: %[3]s}]}`, role, partAccount, partNamespace), "apply", "-f", "-")
	t.Cleanup(func() { p.kubectl("", "delete", "clusterrole,clusterrolebinding", role) }) // other tests compare the rights
	p.namespace("claims", "")
	p.newClaim("claims", "data", "pv-9", "", `limits.blkio.noderesource.dev: "riops=100+3/Gi..16k"`)
	p.attach("worker-8")
	p.start("--driver-limits")
	uid := p.pod("claims", "db-0", "{containers: [{name: a, image: x}], volumes: [{name: v, persistentVolumeClaim: {claimName: data}}]}", "")
	want := &poddoc.Document{Version: 1, UID: uid, Facts: podfacts.Facts{
		Namespace: "claims", Name: "db-0", Annotations: map[string]string{}, Labels: map[string]string{}, NamespaceLabels: map[string]string{},
		Volumes: []policy.Volume{{Name: "v", Claim: "data", Limits: new("riops=100+3/Gi..16k"), Size: 1 << 30}},
	}}
	data := &want.Volumes[0]
	p.equals(want)
	metadata := func(name, rates string) {
		t.Helper()
		p.kubectl("", "patch", "volumeattachment", name, "--subresource=status", "--type=merge", "-p", fmt.Sprintf(`{"status": {"attached": true, "attachmentMetadata": {%s}}}`, rates))
	}
	metadata(p.attach("worker-9"), `"qos.linbit.com/device": "/dev/drbd1000", "qos.linbit.com/wbps": "1048576", "other": "x"`)
	data.Attachment = &policy.ClaimAttachment{Driver: "csi.example.com", Rates: map[string]string{"qos.linbit.com/wbps": "1048576"}}
	p.equals(want)
	metadata(p.attach("worker-8"), `"qos.linbit.com/wbps": "5"`)
	p.kubectl("", "patch", "pvc", "-n", "claims", "data", "--subresource=status", "-p", `{"status": {"capacity": {"storage": "20Gi"}}}`)
	data.Size = 20 << 30
	p.equals(want)
	p.kubectl("", "delete", "volumeattachment", p.attach("worker-9"))
	data.Attachment = nil
	p.equals(want)
}
