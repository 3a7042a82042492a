package mailbox

// makeRoom makes room for a document of a namespace, and returns false if there is none. The largest document of the
// namespace with the most gives way, and the new one counts as one of them. So a namespace with no more than its equal part of
// the memory keeps all its documents, however many those of other namespaces are. No document gives way in vain.
func (r *Reader[T]) makeRoom(uid, namespace string, size int) bool {
	total := r.kept - r.known[uid].size + size
	if total <= r.Format.MaxKept {
		return true
	}
	used := map[string]int{namespace: size}
	for other, f := range r.known {
		if other != uid {
			used[f.namespace] += f.size
		}
	}
	displaced := map[string]bool{}
	for total > r.Format.MaxKept {
		most := namespace
		for other, n := range used {
			if n > used[most] || n == used[most] && most != namespace && other < most {
				most = other
			}
		}
		largest := r.largest(most, func(other string) bool { return other == uid || displaced[other] })
		if most == namespace && (largest == "" || size >= r.known[largest].size) {
			return false
		}
		displaced[largest] = true
		total -= r.known[largest].size
		used[most] -= r.known[largest].size
	}
	for other := range displaced {
		r.displace(other)
	}
	return true
}

// largest returns the UID of the largest document of a namespace, or "" if it has none. It leaves some out.
func (r *Reader[T]) largest(namespace string, without func(uid string) bool) (uid string) {
	for other, f := range r.known {
		if f.namespace != namespace || f.size == 0 || without(other) {
			continue
		}
		if uid == "" || f.size > r.known[uid].size || f.size == r.known[uid].size && other < uid {
			uid = other
		}
	}
	return uid
}

// displace takes a document from its receiver. The file is read again when the files are compared next.
func (r *Reader[T]) displace(uid string) {
	f := r.known[uid]
	r.kept -= f.size
	f.size, f.reported, f.err = 0, false, r.noRoom(uid)
	r.Changed(uid, nil)
}
