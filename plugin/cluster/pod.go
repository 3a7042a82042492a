package cluster

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nri-blkio/nri-blkio/plugin/mailbox"
	"github.com/nri-blkio/nri-blkio/plugin/poddoc"
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

// newPod returns what is kept of a pod, nil if its UID is not that of a pod of the runtime.
func newPod(r *podReader) *pod {
	uid := string(r.out.UID)
	if hash, isMirror := r.marks[mirror]; isMirror {
		if uid = hash; strings.Contains(hash, "-") || r.out.DeletionTimestamp != nil {
			return nil // see mirror
		}
	}
	if !mailbox.IsUID(uid) {
		return nil
	}
	r.facts.Namespace, r.facts.Name = r.out.Namespace, r.out.Name
	p := &pod{key: keyOf(r.out), created: r.out.CreationTimestamp.Time, doc: poddoc.Document{UID: uid, Facts: r.facts}}
	for part, cause := range r.cause {
		p.doc.Omit(part, cause)
	}
	p.doc.Bound() // what is too large is not even kept
	return p
}
