package node

import (
	"math/rand/v2"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nri-blkio/nri-blkio/plugin/enforce"
	"github.com/nri-blkio/nri-blkio/plugin/record"
)

// somewhere returns the cgroup of a pod, or of one of its containers, with its kind of record. It is "" for a slot without a
// pod.
func (r *modelRuntime) somewhere(rng *rand.Rand) (cgroup, kind string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.pods[rng.IntN(modelSlots)]
	if p == nil {
		return "", ""
	}
	cgroup, kind = p.cgroup, record.KindPod
	if rng.IntN(2) == 0 {
		for _, sb := range p.sandboxes {
			for _, c := range sb.containers {
				cgroup, kind = c.cgroup, record.KindContainer
			}
		}
	}
	r.broken = true
	return cgroup, kind
}

// mount mounts a filesystem on the host, or unmounts it.
func (r *modelRuntime) mount() {
	r.mu.Lock()
	r.epoch++
	r.mounted = !r.mounted
	mounted := r.mounted
	if at := modelPropagated + "/late"; mounted {
		r.disks.Mount(at, lateDisk.Name)
	} else {
		r.disks.Unmount(at)
	}
	for _, p := range r.pods {
		if p != nil && p.spec.propagates {
			p.past = p.past || !mounted
		}
	}
	r.eachContainer(func(c *modelContainer) {
		if c.propagates {
			c.below, c.past = mounted, true
		}
	})
	n := r.plugin
	r.mu.Unlock()
	r.note("a filesystem is mounted: %v", mounted)
	n.MountsChanged()
}

// fault makes writes to the files of a cgroup fail, or to the attributes of a pod's cgroup.
func (r *modelRuntime) fault(rng *rand.Rand) {
	cgroup, kind := r.somewhere(rng)
	err := []error{unix.EIO, unix.EBUSY, unix.ENOMEM}[rng.IntN(3)]
	noRoom := rng.IntN(2) == 0 && kind == record.KindPod
	switch {
	case cgroup == "":
	case noRoom:
		r.mu.Lock()
		r.wasFull = true
		r.mu.Unlock()
		r.k.FailAttributes(cgroup, unix.ENOSPC)
	default:
		r.k.Fail(cgroup, err)
	}
	r.note("%s: writes fail with %v, no room for attributes %v", cgroup, err, noRoom)
}

// clear is an operator's clear of a cgroup, or the undo of an earlier one.
func (r *modelRuntime) clear(rng *rand.Rand) {
	cgroup, kind := r.somewhere(rng)
	if cgroup == "" || r.k.Hangs(cgroup) { // the command would hang as well
		return
	}
	at := r.tree.Cgroup(cgroup)
	found, err := record.Read(at, kind)
	if err != nil || found == nil {
		return
	}
	change := (&enforce.Clearer{}).Clear
	if found.Cleared {
		change = (&enforce.Clearer{}).Undo
	}
	steps, err := change(at, found)
	r.note("clear %s, again %v: %q, %v", cgroup, found.Cleared, steps, err)
}

// undo is the operator's undo of all that was cleared.
func (r *modelRuntime) undo() {
	kinds := map[string]string{}
	r.mu.Lock()
	for _, p := range r.pods {
		if p != nil {
			kinds[p.cgroup] = record.KindPod
		}
	}
	r.eachContainer(func(c *modelContainer) { kinds[c.cgroup] = record.KindContainer })
	r.mu.Unlock()
	for cgroup, kind := range kinds {
		at := r.tree.Cgroup(cgroup)
		if found, err := record.Read(at, kind); err == nil && found != nil {
			_, _ = (&enforce.Clearer{}).Undo(at, found)
		}
	}
}

// storeAll lets the plugin store what it could not: without a record, the next plugin does not know the values of this one.
func (r *modelRuntime) storeAll() {
	r.mu.Lock()
	wasFull := r.wasFull
	r.wasFull = false
	r.mu.Unlock()
	if wasFull {
		r.heal()
		time.Sleep(2 * defaultResync)
	}
}
