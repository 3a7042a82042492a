package mailbox

// makeRoom counts a document of a namespace in place of the one before, and returns false if there is no room for it. The
// largest document of the namespace with the most gives way, and the new one counts as one of them. So a namespace with no
// more than its equal part of the memory keeps all its documents, however many those of other namespaces are. No document
// gives way in vain.
func (r *Reader[T]) makeRoom(uid, namespace string, size int) bool {
	own := r.known[uid]
	before := *own
	r.count(own, namespace, size)
	displaced := map[string]int{} // their sizes
	for r.kept > r.Format.MaxKept {
		largest := r.largest(uid, r.most(namespace))
		f := r.known[largest]
		if largest == uid {
			for other, size := range displaced {
				r.count(r.known[other], r.known[other].namespace, size)
			}
			r.count(own, before.namespace, before.size)
			return false
		}
		displaced[largest] = f.size
		r.count(f, f.namespace, 0)
	}
	for other := range displaced { // the file is read again when the files are compared next
		f := r.known[other]
		f.reported, f.err = false, r.noRoom(other)
		r.Changed(other, nil)
	}
	return true
}

// count counts a document in place of the one that was reported of a file.
func (r *Reader[T]) count(f *file, namespace string, size int) {
	r.kept += size - f.size
	if r.used[f.namespace] -= f.size; r.used[f.namespace] == 0 {
		delete(r.used, f.namespace)
	}
	if size > 0 {
		r.used[namespace] += size
	}
	f.namespace, f.size = namespace, size
}

// most returns the namespace whose documents need the most memory: of several ones this one, or the first by name.
func (r *Reader[T]) most(namespace string) string {
	most, size := namespace, r.used[namespace]
	for other, n := range r.used {
		if n > size || n == size && most != namespace && other < most {
			most, size = other, n
		}
	}
	return most
}

// largest returns the UID of the largest document of a namespace: of several ones this one, or the first by UID.
func (r *Reader[T]) largest(uid, namespace string) string {
	largest, size := "", 0
	for other, f := range r.known {
		if f.namespace != namespace || f.size == 0 || f.size < size {
			continue
		}
		if f.size > size || other == uid || largest != uid && other < largest {
			largest, size = other, f.size
		}
	}
	return largest
}
