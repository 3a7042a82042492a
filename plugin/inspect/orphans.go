package inspect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/blkio/hostfs"
	"github.com/nri-blkio/nri-blkio/blkio/storage"
	"github.com/nri-blkio/nri-blkio/plugin/volumepath"
)

// Orphan is an orphaned volume: it is still mounted in the kubelet's directory although its
// pod no longer exists.
type Orphan struct {
	OrphanPod
	OrphanVolume
	State  string `json:"state"`
	Reason string `json:"reason"` // State, in words
	// Mounts are other mountpoints of the same filesystem on the node, and Holders the
	// processes that keep it in use. Only Devices sets them.
	Mounts  []string `json:"mounts,omitempty"`
	Holders []Holder `json:"holders,omitempty"`

	mount *storage.Mount
}

// OrphanPod is the pod of an orphan. Its name is empty if it is unknown.
type OrphanPod struct {
	UID       string `json:"uid"`
	Namespace string `json:"namespace,omitempty"`
	Pod       string `json:"pod,omitempty"`
}

// OrphanVolume is the volume of an orphan, and its mount.
type OrphanVolume struct {
	Volume     string `json:"volume"`
	Plugin     string `json:"plugin,omitempty"` // "" for a subPath
	Mountpoint string `json:"mountpoint"`
	Type       string `json:"type"` // of the filesystem, as in mountinfo
	// Disks are the names of the disks that the filesystem is on.
	Disks []string `json:"disks,omitempty"`
}

// The states of an orphan.
const (
	orphanNoCgroup  = "noCgroup"  // certain
	orphanNoProcess = "noProcess" // probable: its kubelet keeps the cgroup for as long as it knows of the volume
)

var orphanReasons = map[string]string{
	orphanNoCgroup:  "the pod has no cgroup",
	orphanNoProcess: "the pod has run, and its cgroup has no process left: it is ending, was not fully removed, or its sandbox cannot be created",
}

// podMount is a mount in a pod's directory. Of one volume there may be several.
type podMount struct {
	volumepath.Volume
	mount *storage.Mount
}

// podMounts finds the mounts in the directories of the pods' volumes.
func podMounts(t *storage.MountTable, pods string) []podMount {
	var out []podMount
	for _, m := range t.All() {
		v, _, ok := volumepath.Parse(pods, m.Mountpoint)
		if !ok || v.Block {
			continue
		}
		if top, ok := t.Find(m.Mountpoint); !ok || top.ID != m.ID {
			continue // hidden by another one, which counts
		}
		out = append(out, podMount{v, m})
	}
	return out
}

func underscored(uid string) string { return strings.ReplaceAll(uid, "-", "_") }

// orphanFinder finds volumes of pods that no longer exist.
type orphanFinder struct {
	kubelet
	tree  *cgroupfs.Hierarchy
	names map[string]podName
	// grace is how old a pod's directory must be: the kubelet makes it, and may
	// mount volumes in it, before it makes the cgroup.
	grace time.Duration
	boot  time.Time
}

// DefaultOrphanGrace is longer than the time between the creation of a pod's directory and
// that of its cgroup.
const DefaultOrphanGrace = 2 * time.Minute

func (h *Host) orphanFinder(ctx context.Context, records []Recorded) *orphanFinder {
	k := kubelet{h.Storage, h.Root, h.KubeletRoot}
	return &orphanFinder{kubelet: k, tree: h.Cgroups, grace: h.OrphanGrace, boot: hostfs.BootTime(), names: k.podNames(ctx, records)}
}

// find returns the orphans by mountpoint. With an error, some may be missing.
func (f *orphanFinder) find(ctx context.Context) ([]Orphan, error) {
	out := []Orphan{}
	pods := f.podsDir(ctx)
	home, ok := f.storage.Mounts().Find(pods)
	if !ok {
		return out, nil
	}
	mounts := podMounts(f.storage.Mounts(), pods)
	if len(mounts) == 0 {
		return out, nil
	}
	cgroups, err := f.podCgroups()
	if err != nil {
		return out, fmt.Errorf("look for orphaned volumes: %w", err)
	}
	state := map[string]string{} // by pod
	for _, m := range mounts {
		if _, known := state[m.UID]; !known {
			state[m.UID] = f.stateOf(home, path.Join(pods, m.UID), cgroups[underscored(m.UID)])
		}
		if state[m.UID] != "" {
			out = append(out, f.orphan(ctx, m, state[m.UID]))
		}
	}
	slices.SortFunc(out, func(a, b Orphan) int { return cmp.Compare(a.Mountpoint, b.Mountpoint) })
	return out, nil
}

func (f *orphanFinder) orphan(ctx context.Context, m podMount, state string) Orphan {
	at := f.storage.Resolve(ctx, m.mount.Mountpoint)
	name := f.names[m.UID]
	return Orphan{
		OrphanPod: OrphanPod{UID: m.UID, Namespace: name.namespace, Pod: name.name},
		OrphanVolume: OrphanVolume{
			Volume: m.Name, Plugin: m.Plugin, Mountpoint: m.mount.Mountpoint, Type: m.mount.FSType, Disks: blkio.DiskNames(at.Disks),
		},
		State: state, Reason: orphanReasons[state], mount: m.mount,
	}
}

// podCgroups returns the cgroups of pods by UID. It returns an error if some cannot be seen
// here, so that a pod without a cgroup may exist.
func (f *orphanFinder) podCgroups() (map[string][]cgroupfs.Cgroup, error) {
	features, err := f.tree.Probe()
	if err != nil {
		return nil, err
	}
	if features.Namespaced {
		return nil, errors.New("not all pods are visible in this cgroup namespace")
	}
	paths, err := f.tree.IDs()
	if err != nil {
		return nil, err
	}
	kubepods := false
	out := map[string][]cgroupfs.Cgroup{}
	for _, p := range paths {
		kubepods = kubepods || cgroupfs.IsKubepods(path.Base(p))
		// The pod's own, and none below.
		if uid := cgroupfs.PodUID(p); uid != "" && cgroupfs.PodUID(path.Dir(p)) == "" {
			out[uid] = append(out[uid], f.tree.Cgroup(p))
		}
	}
	if !kubepods {
		return nil, errors.New("no kubepods cgroup found")
	}
	return out, nil
}

// mayBePopulated reports whether a cgroup has processes, or cannot be read.
func mayBePopulated(c cgroupfs.Cgroup) bool {
	populated, err := c.Populated()
	return populated || err != nil
}

// stateOf returns the state of an orphan, or "" if the pod exists or may exist.
func (f *orphanFinder) stateOf(home *storage.Mount, dir string, cgroups []cgroupfs.Cgroup) string {
	if slices.ContainsFunc(cgroups, mayBePopulated) {
		return ""
	}
	if m, ok := f.storage.Mounts().Find(dir); !ok || m.ID != home.ID {
		return "" // not the kubelet's own directory, so nothing in it is read
	}
	if changed, err := f.host.ChangeTime(dir); err != nil || time.Since(changed) < f.grace {
		return ""
	}
	switch {
	case len(cgroups) == 0:
		return orphanNoCgroup
	case f.ran(home, path.Join(dir, "containers")):
		return orphanNoProcess
	}
	return "" // it waits for a volume, or an image
}

// ran reports whether a container of a pod was made since the node booted. A pod with older containers only may
// still be about to start again.
//
//	PODS/UID/containers/NAME/HASH	the termination log of each
func (f *orphanFinder) ran(home *storage.Mount, dir string) bool {
	names, _ := f.kubelet.names(home, dir) // without, it is not known to have run
	for _, name := range names {
		sub := path.Join(dir, name)
		if m, ok := f.storage.Mounts().Find(sub); !ok || m.ID != home.ID {
			continue
		}
		if made, ok := f.host.ModTime(sub); ok && made.After(f.boot) {
			return true
		}
	}
	return false
}
