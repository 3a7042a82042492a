package cluster

import (
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
)

// pods are the pods of the node. It is the store of a reflector, whose methods add and remove pods.
type pods struct {
	changed func(uid string) // called without the lock

	mu     sync.Mutex // guards the fields below
	byKey  map[string]*pod
	byUID  map[string]map[string]*pod // by key; more than one only if a pod pretends to be a static pod
	synced bool                       // the API server has listed all pods once
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

// isSynced reports whether a pod that is not there does not exist.
func (p *pods) isSynced() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.synced
}

// Transformer returns a function that reduces a pod to what is kept before the reflector stores it.
func (p *pods) Transformer() cache.TransformFunc {
	return func(object any) (any, error) {
		if o, ok := object.(*corev1.Pod); ok {
			return slim(o), nil
		}
		return object, nil
	}
}

// Add is called by the reflector.
func (p *pods) Add(object any) error { return p.set(object) }

// Update is called by the reflector.
func (p *pods) Update(object any) error { return p.set(object) }

// Resync is called by the reflector.
func (p *pods) Resync() error { return nil }

func (p *pods) set(object any) error {
	o, ok := object.(*corev1.Pod)
	if !ok {
		return fmt.Errorf("unexpected object %T", object)
	}
	p.notify(p.replace(o.Namespace+"/"+o.Name, newPod(o)))
	return nil
}

// Delete is called by the reflector.
func (p *pods) Delete(object any) error {
	o, ok := object.(*corev1.Pod)
	if !ok {
		return fmt.Errorf("unexpected object %T", object)
	}
	p.notify(p.replace(o.Namespace+"/"+o.Name, nil))
	return nil
}

// Replace is called by the reflector with all pods of the node.
func (p *pods) Replace(objects []any, _ string) error {
	fresh := map[string]*pod{}
	for _, object := range objects {
		if o, ok := object.(*corev1.Pod); ok {
			fresh[o.Namespace+"/"+o.Name] = newPod(o)
		}
	}
	var uids []string
	for _, key := range p.keys() {
		if fresh[key] == nil {
			uids = append(uids, p.replace(key, nil)...)
		}
	}
	for key, pod := range fresh {
		uids = append(uids, p.replace(key, pod)...)
	}
	p.setSynced()
	p.notify(uids)
	return nil
}

func (p *pods) setSynced() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.synced = true
}

func (p *pods) keys() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make([]string, 0, len(p.byKey))
	for key := range p.byKey {
		out = append(out, key)
	}
	return out
}

// replace stores a pod, or removes it if it is nil. It returns the UIDs that this concerns: two if
// the pod was deleted and created again under its name.
func (p *pods) replace(key string, next *pod) (uids []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if old := p.byKey[key]; old != nil {
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
