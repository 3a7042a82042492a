package cluster

import (
	"maps"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime"
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
