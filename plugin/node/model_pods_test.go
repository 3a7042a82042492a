package node

import (
	"fmt"
	"maps"
	"math/rand/v2"

	"github.com/nri-blkio/nri-blkio/plugin/podfacts"
	"github.com/nri-blkio/nri-blkio/plugin/shares"
)

// sandbox and container return the descriptions in events, which are new for each event.
func (p *modelPod) sandbox(sb *modelSandbox) *Sandbox {
	return &Sandbox{
		ID:     sb.id,
		UID:    p.uid,
		Cgroup: "/" + p.cgroup,
		Facts: podfacts.Facts{
			Name:        p.name,
			Namespace:   "ns",
			Annotations: maps.Clone(sb.reported),
			Labels:      modelLabels("tier", sb.tier),
		},
	}
}

func (p *modelPod) container(c *modelContainer) *Container {
	state := map[modelState]State{
		modelCreated: Created,
		modelRunning: Running,
		modelExited:  Stopped,
	}
	return &Container{
		ID: c.id, Sandbox: c.sandbox.id, Name: c.name, State: state[c.state], Spec: p.specOf(c),
		Cgroup: fmt.Sprintf("kubepods-pod%s.slice:cri-containerd:%s", p.uid, c.id), OCI: OCI{Unified: maps.Clone(c.unified), Mark: c.mark},
	}
}

// addPod makes a pod in a slot, with its first sandbox.
func (r *modelRuntime) addPod(slot int, rng *rand.Rand) *modelPod {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ids++
	p := &modelPod{slot: slot, name: fmt.Sprintf("p%d-%d", slot, r.ids), uid: fmt.Sprint("u", r.ids), spec: newModelSpec(slot, rng), data: "/mnt/data/x"}
	if borrower := r.pods[borrowingSlot]; slot == lendingSlot && borrower != nil {
		p.owner = podfacts.Owner{Name: borrower.name, UID: borrower.uid, IsPod: true}
	}
	p.annotations, p.tier = p.spec.annotations, string(rune('a'+slot%3))
	p.cgroup = "kubepods.slice/kubepods-pod" + p.uid + ".slice"
	r.k.Make(p.cgroup, true)
	if p.spec.slow != "" {
		r.disks.Mount(p.spec.slow, slowDisk.Name)
	}
	if p.isCounted() {
		r.k.Replace(p.cgroup, "memory.stat", "file_dirty 0\nfile_writeback 0\n")
	}
	if p.hasShares() {
		if err := r.tree.Cgroup(p.cgroup).WriteXattr(shares.Attribute, []byte(modelShares)); err != nil {
			r.t.Error(err)
		}
	}
	r.pods[slot] = p
	r.forgotten(p)
	r.addSandbox(p)
	return p
}

// isCounted reports whether the kernel counts the data that a pod has left to write, and that count is zero.
// If so, no limit may stay after the last container has ended, even after an unclean end.
func (p *modelPod) isCounted() bool { return p.slot%2 == 0 }

// hasShares reports whether the keeper of weights has its attribute on the cgroup of a pod.
func (p *modelPod) hasShares() bool { return p.slot%3 == 0 }

const modelShares = "254:16"

// addSandbox makes a sandbox for a pod. The caller holds mu.
func (r *modelRuntime) addSandbox(p *modelPod) {
	r.ids++
	p.unsettled = p.unsettled || p.mayInherit()
	p.sandboxes = append(p.sandboxes, &modelSandbox{id: fmt.Sprint("s", r.ids), ready: true, reported: p.annotations, tier: p.tier})
}

// mayInherit reports whether a new sandbox may get the labels of its namespace from an earlier one, because the document of
// the pod is lost.
func (p *modelPod) mayInherit() bool { return !p.hasDocument && len(p.sandboxes) > 0 }

// current is the pod's newest sandbox.
func (p *modelPod) current() *modelSandbox { return p.sandboxes[len(p.sandboxes)-1] }
