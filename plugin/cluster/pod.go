package cluster

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nri-blkio/nri-blkio/plugin/mailbox"
	"github.com/nri-blkio/nri-blkio/plugin/poddoc"
	"github.com/nri-blkio/nri-blkio/plugin/podfacts"
	"github.com/nri-blkio/nri-blkio/policy"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// mirror is the annotation of the mirror pod, the object by which the API server shows a static pod. Its
// value is the UID that the runtime knows.
//
// Any author of a pod can write it: the API server only asks that the pod names its node, and that the
// annotation never changes (ValidatePodSpecificAnnotations and ValidatePodSpecificAnnotationUpdates in
// Kubernetes' pkg/apis/core/validation/validation.go). So a tenant can claim the UID of a static pod, and
// no others:
//
//   - The UIDs of all other pods are UUIDs, which newPod does not take from the annotation.
//   - The document would have the namespace and the name of the tenant's pod, and the reader ignores it
//     (node.Node.SetLive). So the tenant could at most keep the static pod from having a document.
//   - The kubelet runs no mirror pod. It deletes one without a static pod of this name within seconds
//     (Kubelet.HandlePodCleanups in pkg/kubelet/kubelet_pods.go, GetOrphanedMirrorPodNames in
//     pkg/kubelet/pod/pod_manager.go). With a finalizer the object stays, but is marked as deleted, and
//     newPod does not take it for a mirror pod any more.
//   - Until then, pods.of takes the older one of two. A tenant's pod is older only if the kubelet has
//     created the mirror pod again since, as after an administrator deleted it.
const mirror = corev1.MirrorPodAnnotationKey

// pod is what is kept of a pod: the parts of its document that come from the pod itself.
type pod struct {
	key     string // NAMESPACE/NAME, which is unique
	created time.Time
	doc     poddoc.Document
}

// slim returns a pod with the fields that newPod reads, and those that a reflector needs. A pod can
// have 1 MB of other fields.
func slim(o *corev1.Pod) *corev1.Pod {
	out := &corev1.Pod{}
	out.Namespace, out.Name, out.UID, out.ResourceVersion = o.Namespace, o.Name, o.UID, o.ResourceVersion
	out.CreationTimestamp, out.DeletionTimestamp = o.CreationTimestamp, o.DeletionTimestamp
	out.Annotations, out.Labels = podfacts.Own(o.Annotations), poddoc.KeptLabels(o.Labels)
	if hash, isMirror := o.Annotations[mirror]; isMirror {
		out.Annotations[mirror] = hash
	}
	ofClaims := map[string]bool{}
	for i := range o.Spec.Volumes {
		v := corev1.Volume{Name: o.Spec.Volumes[i].Name}
		switch from := &o.Spec.Volumes[i]; {
		case from.PersistentVolumeClaim != nil:
			v.PersistentVolumeClaim = &corev1.PersistentVolumeClaimVolumeSource{ClaimName: from.PersistentVolumeClaim.ClaimName}
		case from.Ephemeral != nil:
			v.Ephemeral = &corev1.EphemeralVolumeSource{}
		default:
			continue
		}
		ofClaims[v.Name] = true
		if out.Spec.Volumes = append(out.Spec.Volumes, v); len(out.Spec.Volumes) > poddoc.MaxVolumes {
			break // newPod omits them all
		}
	}
	for _, c := range containers(o) {
		kept := corev1.Container{Name: c.Name, VolumeDevices: c.VolumeDevices}
		for i := range c.VolumeMounts {
			if ofClaims[c.VolumeMounts[i].Name] {
				kept.VolumeMounts = append(kept.VolumeMounts, c.VolumeMounts[i])
			}
		}
		out.Spec.Containers = append(out.Spec.Containers, kept)
	}
	return out
}

// containers returns the containers of a pod, of all kinds.
func containers(o *corev1.Pod) (out []*corev1.Container) {
	for _, list := range [][]corev1.Container{o.Spec.InitContainers, o.Spec.Containers} {
		for i := range list {
			out = append(out, &list[i])
		}
	}
	for i := range o.Spec.EphemeralContainers {
		out = append(out, (*corev1.Container)(&o.Spec.EphemeralContainers[i].EphemeralContainerCommon))
	}
	return out
}

// newPod returns nil for a pod whose UID is not that of a pod of the runtime.
func newPod(o *corev1.Pod) *pod {
	uid := string(o.UID)
	if hash, isMirror := o.Annotations[mirror]; isMirror {
		if uid = hash; strings.Contains(hash, "-") || o.DeletionTimestamp != nil {
			return nil // see mirror
		}
	}
	if !mailbox.IsUID(uid) {
		return nil
	}
	p := &pod{key: o.Namespace + "/" + o.Name, created: o.CreationTimestamp.Time}
	p.doc = poddoc.Document{UID: uid, Facts: podfacts.Facts{
		Namespace: o.Namespace, Name: o.Name, Annotations: podfacts.Own(o.Annotations), Labels: poddoc.KeptLabels(o.Labels), Volumes: claimVolumes(o),
	}}
	p.doc.Bound() // what is too large is not even kept
	return p
}

// claimVolumes returns the volumes of a pod that are claims, with their places in the containers.
func claimVolumes(o *corev1.Pod) []policy.ClaimVolume {
	index, out := map[string]int{}, []policy.ClaimVolume{}
	for i := range o.Spec.Volumes {
		v := &o.Spec.Volumes[i]
		name := ""
		switch {
		case v.PersistentVolumeClaim != nil:
			name = v.PersistentVolumeClaim.ClaimName
		case v.Ephemeral != nil:
			name = o.Name + "-" + v.Name // see VolumeClaimName in component-helpers/storage/ephemeral
		}
		// No claim can have another name, and pods are not validated for that.
		if poddoc.IsName(name) && annotation.IsLabel(v.Name) {
			index[v.Name] = len(out)
			out = append(out, policy.ClaimVolume{Name: v.Name, Claim: name})
		}
	}
	if len(out) == 0 || len(out) > poddoc.MaxVolumes {
		return out
	}
	for _, c := range containers(o) {
		place := func(volume, path string) {
			if i, ok := index[volume]; ok {
				out[i].Places = append(out[i].Places, policy.Place{Container: c.Name, Path: path})
			}
		}
		for i := range c.VolumeMounts {
			place(c.VolumeMounts[i].Name, c.VolumeMounts[i].MountPath)
		}
		for i := range c.VolumeDevices {
			place(c.VolumeDevices[i].Name, c.VolumeDevices[i].DevicePath)
		}
	}
	return out
}
