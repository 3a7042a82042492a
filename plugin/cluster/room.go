package cluster

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
	var kept []Ref
	for _, ref := range s.byPod[uid] {
		if ref.Kind == Namespaces {
			kept = append(kept, ref)
		} else {
			s.remove(uid, ref)
		}
	}
	s.byPod[uid] = kept
}
