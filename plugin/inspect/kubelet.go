package inspect

import (
	"cmp"
	"context"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/nri-blkio/nri-blkio/blkio/hostfs"
	"github.com/nri-blkio/nri-blkio/blkio/storage"
	"github.com/nri-blkio/nri-blkio/plugin/volumepath"
)

// kubelet reads the kubelet's directories. It opens no mountpoint in them: a network
// filesystem that does not answer would hang the reader.
type kubelet struct {
	storage *storage.Storage
	host    hostfs.Root
	root    string // its root directory, a path of the node
}

// podVolume is a volume of a pod on this node.
type podVolume struct {
	volumepath.Volume
	path   string // of the node, where it is mounted; of a device, a link to it
	orphan bool
	pod    podName
}

type podName struct{ namespace, name string }

func (v *podVolume) node() *Node {
	return &Node{
		Kind: KindVolume, Name: v.Name,
		Place: Place{Plugin: v.Plugin, UID: v.UID, Namespace: v.pod.namespace, Pod: v.pod.name, Path: v.path, Orphan: v.orphan},
	}
}

// podsDir returns the directory of the pods, free of symlinks, as mount tables
// have it; "" where the kubelet has none on a local filesystem.
func (k *kubelet) podsDir(ctx context.Context) string {
	dir, local := k.storage.Locate(ctx, volumepath.Pods(k.root))
	if !local {
		return ""
	}
	return dir
}

func (k *kubelet) volumes(ctx context.Context) ([]podVolume, error) {
	pods := k.podsDir(ctx)
	if pods == "" {
		return nil, nil
	}
	home, ok := k.storage.Mounts().Find(pods)
	if !ok {
		return nil, nil
	}
	uids, err := k.names(home, pods)
	if err != nil {
		return nil, fmt.Errorf("look for volumes: %w", err)
	}
	var out []podVolume
	for _, uid := range uids {
		for _, kind := range []string{"volumes", "volumeDevices"} {
			found, err := k.volumesIn(home, pods, path.Join(pods, uid, kind))
			if err != nil {
				return out, fmt.Errorf("look for volumes: %w", err)
			}
			out = append(out, found...)
		}
	}
	return out, nil
}

// withOrphans marks the volumes that are orphaned, adds those that have no
// directory of their own (a subPath), and puts them in order.
func withOrphans(volumes []podVolume, orphans []Orphan) []podVolume {
	at := map[string]int{}
	for i, v := range volumes {
		at[v.path] = i
	}
	for _, o := range orphans {
		i, known := at[o.Mountpoint]
		if !known {
			i = len(volumes)
			volumes = append(volumes, podVolume{Volume: volumepath.Volume{UID: o.UID, Plugin: o.Plugin, Name: o.Volume}, path: o.Mountpoint})
		}
		volumes[i].orphan = true
	}
	slices.SortStableFunc(volumes, func(a, b podVolume) int { return cmp.Compare(a.rank(), b.rank()) })
	return volumes
}

// rank orders volumes: orphans first, then provisioned volumes, then the scratch space and
// configuration that each pod has.
func (v *podVolume) rank() int {
	if v.orphan {
		return -1
	}
	switch v.Plugin {
	case "kubernetes.io/empty-dir":
		return 1
	case "kubernetes.io/configmap", "kubernetes.io/secret", "kubernetes.io/projected", "kubernetes.io/downward-api":
		return 2
	}
	return 0
}

func (k *kubelet) volumesIn(home *storage.Mount, pods, dir string) ([]podVolume, error) {
	plugins, err := k.names(home, dir)
	if err != nil {
		return nil, err
	}
	var out []podVolume
	for _, plugin := range plugins {
		volumes, err := k.names(home, path.Join(dir, plugin))
		if err != nil {
			return nil, err
		}
		for _, name := range volumes {
			v := podVolume{path: path.Join(dir, plugin, name)}
			v.Volume, _, _ = volumepath.Parse(pods, v.path)
			switch {
			case !v.Block && v.Plugin == volumepath.CSI:
				v.path += "/mount"
			case v.Block && v.Name == v.UID:
				continue // no volume: older kubelets keep a link for each pod
			}
			out = append(out, v)
		}
	}
	return out, nil
}

// names lists a directory of the kubelet's own, sorted; nothing if it is not
// there, or is not the kubelet's own because something is mounted on it.
func (k *kubelet) names(home *storage.Mount, dir string) ([]string, error) {
	if m, ok := k.storage.Mounts().Find(dir); !ok || m.ID != home.ID {
		return nil, nil
	}
	return k.host.Names(dir)
}

// logsDir holds a directory for each pod that has, or had, containers.
const logsDir = "/var/log/pods"

// podNames finds the names of pods by their UIDs: those of records, and from the names of
// the kubelet's log directories, NAMESPACE_NAME_UID.
func (k *kubelet) podNames(ctx context.Context, records []Recorded) map[string]podName {
	out := map[string]podName{}
	if dir, local := k.storage.Locate(ctx, logsDir); local {
		if home, ok := k.storage.Mounts().Find(dir); ok {
			logs, _ := k.names(home, dir) // a pod without a name has its UID
			for _, name := range logs {
				if parts := strings.Split(name, "_"); len(parts) == 3 {
					out[parts[2]] = podName{parts[0], parts[1]}
				}
			}
		}
	}
	for _, r := range records {
		out[r.Record.UID] = podName{r.Record.Namespace, r.Record.Pod}
	}
	return out
}
