package cluster

import (
	"context"
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
)

const (
	// maxObjects bounds the objects that are watched for all pods. Each takes about 25 KiB.
	maxObjects = 4096
	// ownObjects is the number of objects that each pod can have watched even then. The kubelet
	// bounds the number of pods. A claim is up to four objects.
	ownObjects = 8
)

// objects are the objects that pods name. Each is watched for as long as a pod needs it.
type objects struct {
	watch   func(context.Context, *object) // returns when the context ends
	changed func(uid string)               // called without the lock
	most    int                            // objects; maxObjects

	mu      sync.Mutex // guards the fields below
	byRef   map[Ref]*object
	byPod   map[string][]Ref // by UID
	watches sync.WaitGroup
}

// object is one watched object. Its watch is the only one that sets it.
type object struct {
	ref    Ref
	tenant string // by which requests take turns
	stop   context.CancelFunc
	all    *objects

	// Guarded by objects.mu.
	pods  map[string]bool // the UIDs of those that need it
	known bool            // the API server has answered once
	value any             // what is kept of the object; nil if there is none
	err   error           // of the last request; nil after a success
}

func newObjects(watch func(context.Context, *object), changed func(uid string)) *objects {
	return &objects{watch: watch, changed: changed, most: maxObjects, byRef: map[Ref]*object{}, byPod: map[string][]Ref{}}
}

// need sets the objects that a pod needs. It starts their watches, and stops the watches that no pod needs any more. It notifies
// other pods that lose objects because this pod gets them. It returns false if there is no room. Then the pod keeps its former objects.
func (s *objects) need(ctx context.Context, uid string, refs []Ref) bool {
	displaced, ok := s.take(ctx, uid, refs)
	for _, other := range displaced {
		s.changed(other)
	}
	return ok
}

// take does the work of need, and returns the UIDs of the pods that had to make room.
func (s *objects) take(ctx context.Context, uid string, refs []Ref) (displaced []string, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	tenant := tenantOf(refs)
	if len(refs) > ownObjects {
		if displaced, ok = s.makeRoom(tenant, refs); !ok {
			return displaced, false
		}
	}
	for _, ref := range refs {
		s.add(ctx, uid, ref, tenant)
	}
	for _, ref := range s.byPod[uid] {
		if !slices.Contains(refs, ref) {
			s.remove(uid, ref)
		}
	}
	if s.byPod[uid] = refs; len(refs) == 0 {
		delete(s.byPod, uid)
	}
	return displaced, true
}

// tenantOf returns the namespace of the pod that needs these objects.
func tenantOf(refs []Ref) string {
	if i := slices.IndexFunc(refs, func(ref Ref) bool { return ref.Kind == Namespaces }); i >= 0 {
		return refs[i].Name
	}
	return ""
}

// add is called with the lock.
func (s *objects) add(ctx context.Context, uid string, ref Ref, tenant string) {
	o := s.byRef[ref]
	if o == nil {
		if ref.Namespace == "" {
			tenant += "/" + string(ref.Kind) // other tenants may need it: it does not wait for claims of this one
		}
		o = &object{ref: ref, tenant: tenant, all: s, pods: map[string]bool{}}
		s.byRef[ref] = o
		ctx, o.stop = context.WithCancel(ctx)
		s.watches.Go(func() { s.watch(ctx, o) })
	}
	o.pods[uid] = true
}

// remove is called with the lock.
func (s *objects) remove(uid string, ref Ref) {
	o := s.byRef[ref]
	delete(o.pods, uid)
	if len(o.pods) == 0 {
		o.stop()
		delete(s.byRef, ref)
	}
}

// get returns what is kept of an object, nil if there is none. known is false until the API server
// has answered.
func (s *objects) get(ref Ref) (value any, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.byRef[ref]
	if o == nil {
		return nil, false
	}
	return o.value, o.known
}

// problem returns the number of watched objects and of those that could not be read, with the error of one.
func (s *objects) problem() (watched, failed int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range s.byRef {
		if o.err != nil {
			failed++
			if err == nil || o.err.Error() < err.Error() { // the same one each time
				err = o.err
			}
		}
	}
	return len(s.byRef), failed, err
}

// wait returns when the watches have ended, after their context.
func (s *objects) wait() { s.watches.Wait() }

// keep implements target.
func (o *object) keep(from runtime.Object) any { return kept(from) }

// setAll implements target: there is no other object.
func (o *object) setAll(values map[string]any) {
	var only any
	for _, only = range values {
	}
	o.set(only)
}

// change implements target.
func (o *object) change(_ string, value any) { o.set(value) }

func (o *object) set(value any) {
	for _, uid := range o.store(value) {
		o.all.changed(uid)
	}
}

func (o *object) store(value any) (uids []string) {
	o.all.mu.Lock()
	defer o.all.mu.Unlock()
	o.value, o.known = value, true
	return slices.Collect(maps.Keys(o.pods))
}

func (o *object) failed(err error) {
	o.all.mu.Lock()
	defer o.all.mu.Unlock()
	o.err = err
}

// makeRoom makes room for the objects of a pod, by its namespace, and returns false if there is none. While the objects are
// full, each namespace with pods has an equal part of them. A namespace within its part gets room from those above
// theirs: their pods lose what they need, the largest pods first. So the claims of one tenant cannot
// take the watches of another one. The order of the pods makes no difference. A pod does not displace those that have
// displaced it, because its namespace would be above its part.
//
// It returns the UIDs of the pods that were displaced. It is called with the lock.
func (s *objects) makeRoom(tenant string, refs []Ref) (displaced []string, ok bool) {
	for {
		added := s.added(refs)
		if added == 0 || len(s.byRef)+added <= s.most {
			return displaced, true
		}
		used := s.used(tenant, refs)
		part := s.most / len(used)
		if used[tenant] > part {
			return displaced, false
		}
		uid := s.largest(func(tenant string) bool { return used[tenant] > part })
		if uid == "" {
			return displaced, false
		}
		s.displace(uid)
		displaced = append(displaced, uid)
	}
}

// added returns the number of those objects that are not watched yet. It is called with the lock.
func (s *objects) added(refs []Ref) (n int) {
	for _, ref := range refs {
		if s.byRef[ref] == nil {
			n++
		}
	}
	return n
}

// used returns the number of objects that the pods of each namespace need, with those refs for one of them. It is called with the lock.
func (s *objects) used(tenant string, refs []Ref) map[string]int {
	type use struct {
		tenant string
		ref    Ref
	}
	seen, out := map[use]bool{}, map[string]int{}
	count := func(tenant string, refs []Ref) {
		for _, ref := range refs {
			if u := (use{tenant, ref}); !seen[u] {
				seen[u] = true
				out[tenant]++
			}
		}
	}
	count(tenant, refs)
	for _, refs := range s.byPod {
		count(tenantOf(refs), refs)
	}
	return out
}

// largest returns the UID of the pod with the most objects among those namespaces, or "". Pods that
// have no more than each pod can have are left out. It is called with the lock.
func (s *objects) largest(of func(tenant string) bool) (uid string) {
	most := ownObjects
	for other, refs := range s.byPod {
		isLarger := len(refs) > most || len(refs) == most && other < uid
		if isLarger && of(tenantOf(refs)) {
			uid, most = other, len(refs)
		}
	}
	return uid
}

// displace takes all objects but the namespace from a pod. It is called with the lock.
func (s *objects) displace(uid string) {
	s.byPod[uid] = slices.DeleteFunc(slices.Clone(s.byPod[uid]), func(ref Ref) bool {
		if ref.Kind != Namespaces {
			s.remove(uid, ref)
		}
		return ref.Kind != Namespaces
	})
}
