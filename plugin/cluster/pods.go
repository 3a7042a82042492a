package cluster

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/nri-blkio/nri-blkio/plugin/mailbox"
	"github.com/nri-blkio/nri-blkio/plugin/poddoc"
	"github.com/nri-blkio/nri-blkio/plugin/reminder"
)

// pods are the pods of the node.
type pods struct {
	changed func(uid string) // called without the lock

	synced atomic.Bool // the API server has listed all pods once: one that is not there does not exist

	mu    sync.Mutex // guards the fields below
	byKey map[string]*pod
	byUID map[string]map[string]*pod // by key; more than one only if a pod pretends to be a static pod
}

func newPods(changed func(uid string)) *pods {
	return &pods{changed: changed, byKey: map[string]*pod{}, byUID: map[string]map[string]*pod{}}
}

// of returns the pod with a UID, nil if there is none. Of two it returns the older one: the other one
// pretends to be a static pod, see mirror.
func (p *pods) of(uid string) *pod {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out *pod
	for _, pod := range p.byUID[uid] {
		if out == nil || pod.created.Before(out.created) || pod.created.Equal(out.created) && pod.key < out.key {
			out = pod
		}
	}
	return out
}

// keep implements target. It returns the pod that is already there if what is kept of it has not changed.
func (p *pods) keep(object runtime.Object) any {
	o, ok := object.(*podObject)
	if !ok || o.pod == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if old := p.byKey[o.pod.key]; reflect.DeepEqual(old, o.pod) {
		return old
	}
	return o.pod
}

// change implements target.
func (p *pods) change(key string, value any) {
	next, _ := value.(*pod)
	p.notify(p.replace(key, next))
}

// setAll implements target: these are all pods of the node.
func (p *pods) setAll(values map[string]any) {
	var uids []string
	for _, key := range p.keys() {
		if values[key] == nil {
			uids = append(uids, p.replace(key, nil)...)
		}
	}
	for key, value := range values {
		next, _ := value.(*pod)
		uids = append(uids, p.replace(key, next)...)
	}
	p.synced.Store(true)
	p.notify(uids)
}

func (p *pods) keys() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Collect(maps.Keys(p.byKey))
}

// replace stores a pod, or removes it if it is nil. It returns the UIDs that this concerns: none if it is the same one, and two
// if the pod was deleted and created again under its name.
func (p *pods) replace(key string, next *pod) (uids []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	old := p.byKey[key]
	if old == next {
		return nil
	}
	if old != nil {
		uids = append(uids, old.doc.UID)
		delete(p.byKey, key)
		if delete(p.byUID[old.doc.UID], key); len(p.byUID[old.doc.UID]) == 0 {
			delete(p.byUID, old.doc.UID)
		}
	}
	if next == nil {
		return uids
	}
	p.byKey[key] = next
	if p.byUID[next.doc.UID] == nil {
		p.byUID[next.doc.UID] = map[string]*pod{}
	}
	p.byUID[next.doc.UID][key] = next
	return append(uids, next.doc.UID)
}

func (p *pods) notify(uids []string) {
	for _, uid := range uids {
		p.changed(uid)
	}
}

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

// The author of a pod decides how often it changes. So a number of changes of a pod are written at once, and then one in each
// interval: the newest one. Other pods do not wait for them.
const (
	changesAtOnce  = 10 // with what becomes known of a new pod
	changeInterval = time.Second
)

// queue has the UIDs of the pods whose documents may have to change.
type queue struct {
	wake chan struct{} // has one slot

	mu   sync.Mutex // guards the fields below
	uids map[string]bool
	paid map[string]time.Time // the changes of a pod so far take changeInterval each, until then
}

func newQueue() *queue {
	return &queue{wake: make(chan struct{}, 1), uids: map[string]bool{}, paid: map[string]time.Time{}}
}

func (q *queue) add(uid string) {
	q.put(uid)
	reminder.Wake(q.wake)
}

// put adds a UID without waking the loop.
func (q *queue) put(uid string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.uids[uid] = true
}

// take takes the UIDs that are due, sorted. The others become due at next, which is zero if there are none.
func (q *queue) take(now time.Time) (uids []string, next time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	maps.DeleteFunc(q.paid, func(_ string, until time.Time) bool { return !until.After(now) })
	for _, uid := range slices.Sorted(maps.Keys(q.uids)) {
		until, isPaced := q.paid[uid]
		if !isPaced {
			until = now
		}
		if due := until.Add(-(changesAtOnce - 1) * changeInterval); due.After(now) {
			if next.IsZero() || due.Before(next) {
				next = due
			}
			continue
		}
		delete(q.uids, uid)
		q.paid[uid] = until.Add(changeInterval)
		uids = append(uids, uid)
	}
	return uids, next
}
