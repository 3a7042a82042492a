package check

import (
	"context"
	"iter"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/manifest"
	"github.com/nri-blkio/nri-blkio/policy"
)

// pathResolver answers with the path itself, as the name of a disk.
type pathResolver struct{}

func (pathResolver) Resolve(_ context.Context, p string) blkio.Backing { return onPath(p) }

// Submounts are two, of which one has no disk.
func (pathResolver) Submounts(_ context.Context, p string) iter.Seq2[string, blkio.Backing] {
	return func(yield func(string, blkio.Backing) bool) {
		if p == "/mnt" {
			_ = yield("disk", onPath("/mnt/disk")) && yield("mem", blkio.Backing{FSType: "tmpfs", Reason: tmpfsReason})
		}
	}
}

func onPath(p string) blkio.Backing {
	return blkio.Backing{FSType: "ext4", Disks: []blkio.Disk{{Name: p}}}
}

func TestVolumes(t *testing.T) {
	rootfs := onPath("/var/lib/containerd")
	tmpfs := blkio.Backing{FSType: "tmpfs", Reason: "tmpfs is memory, not a disk"}
	emptyDir := onPath("/kubelet/pods")
	unknown := func(name string) blkio.Backing {
		return blkio.Backing{
			Disks:   []blkio.Disk{blkio.UnknownDisk(0, name)},
			Warning: &blkio.Warning{Text: "disk unknown until the volume is mounted; if it then has no disk on this node, the container is rejected"},
		}
	}
	tests := []struct {
		name   string
		source manifest.Volume
		mount  manifest.Mount
		want   policy.Mount
	}{
		{
			name:   "hostPath",
			source: manifest.Volume{Source: "hostPath", Path: "/srv"},
			want:   policy.Mount{Backing: onPath("/srv")},
		},
		{
			name:   "hostPath with a subPath, read-only",
			source: manifest.Volume{Source: "hostPath", Path: "/srv"},
			mount:  manifest.Mount{SubPath: "a/b", ReadOnly: true},
			want:   policy.Mount{Backing: onPath("/srv/a/b"), ReadOnly: true, Volume: "v"},
		},
		{
			name:   "hostPath with a subPathExpr",
			source: manifest.Volume{Source: "hostPath", Path: "/srv"},
			mount:  manifest.Mount{SubPath: "$(NAME)"},
			want:   policy.Mount{Backing: onPath("/srv"), Volume: "v"},
		},
		{
			name:   "emptyDir",
			source: manifest.Volume{Source: "emptyDir"},
			want:   policy.Mount{Backing: emptyDir, Volume: "v"},
		},
		{name: "gitRepo", source: manifest.Volume{Source: "gitRepo"}, want: policy.Mount{Backing: emptyDir, Volume: "v"}},
		{
			name:   "emptyDir with a subPath",
			source: manifest.Volume{Source: "emptyDir"},
			mount:  manifest.Mount{SubPath: "a"},
			want:   policy.Mount{Backing: emptyDir, Volume: "v"},
		},
		{
			name:   "emptyDir in memory",
			source: manifest.Volume{Source: "emptyDir", Medium: "Memory"},
			want:   policy.Mount{Backing: tmpfs, Volume: "v"},
		},
		{
			name:   "emptyDir of huge pages",
			source: manifest.Volume{Source: "emptyDir", Medium: "HugePages-2Mi"},
			want:   policy.Mount{Backing: blkio.Backing{FSType: "hugetlbfs", Reason: "hugetlbfs is memory, not a disk"}, Volume: "v"},
		},
		{name: "configMap", source: manifest.Volume{Source: "configMap"}, want: policy.Mount{Backing: emptyDir, ReadOnly: true, Volume: "v"}},
		{name: "secret", source: manifest.Volume{Source: "secret"}, want: policy.Mount{Backing: tmpfs, ReadOnly: true, Volume: "v"}},
		{name: "projected", source: manifest.Volume{Source: "projected"}, want: policy.Mount{Backing: tmpfs, ReadOnly: true, Volume: "v"}},
		{name: "downwardAPI", source: manifest.Volume{Source: "downwardAPI"}, want: policy.Mount{Backing: tmpfs, ReadOnly: true, Volume: "v"}},
		{name: "image", source: manifest.Volume{Source: "image"}, want: policy.Mount{Backing: rootfs, ReadOnly: true}},
		{
			name:   "NFS",
			source: manifest.Volume{Source: "nfs"},
			want:   policy.Mount{Backing: blkio.Backing{FSType: "nfs", Reason: "nfs is a network filesystem: there is no local disk to limit"}},
		},
		{
			name:   "claim",
			source: manifest.Volume{Source: "persistentVolumeClaim", Claim: "c"},
			want:   policy.Mount{Backing: unknown("disk of claim c")},
		},
		{name: "CSI", source: manifest.Volume{Source: "csi"}, want: policy.Mount{Backing: unknown("disk of CSI volume v"), Volume: "v"}},
		{
			name:   "claim with a subPath", // its directory has the PersistentVolume's name
			source: manifest.Volume{Source: "persistentVolumeClaim", Claim: "c"},
			mount:  manifest.Mount{SubPath: "a"},
			want:   policy.Mount{Backing: unknown("disk of claim c")},
		},
		{name: "ephemeral", source: manifest.Volume{Source: "ephemeral"}, want: policy.Mount{Backing: unknown("disk of volume v")}},
		{name: "a kind that is not known yet", source: manifest.Volume{Source: "quantumStore"}, want: policy.Mount{Backing: unknown("disk of volume v")}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			v := volumes{storage: pathResolver{}, kubeletRoot: "/kubelet", rootfs: rootfs}
			tt.source.Name, tt.mount.Volume, tt.mount.Path = "v", "v", "/data/"
			tt.want.Destination = "/data"
			cs := v.containers(context.Background(), &manifest.Pod{
				Containers: []manifest.Container{{Name: "c", Mounts: []manifest.Mount{tt.mount}}},
				Volumes:    []manifest.Volume{tt.source},
			})
			mounts := cs[0].Mounts
			if d := cmp.Diff(tt.want, mounts[len(mounts)-1]); d != "" {
				t.Errorf("-want +got:\n%s", d)
			}
			for _, m := range mounts[:len(mounts)-1] {
				if !m.Injected {
					t.Errorf("%s is not marked as injected", m.Destination)
				}
			}
		})
	}
}

// A path below a volume may be on a disk of its own; a volume may be a disk.
func TestVolumesBelowAndDevices(t *testing.T) {
	pod := manifest.Pod{
		Containers: []manifest.Container{
			{
				Name: "a",
				Mounts: []manifest.Mount{
					{Volume: "mnt", Path: "/host"}, {Volume: "mnt", Path: "/sub", SubPath: "disk"},
				},
				Devices: []manifest.Device{{Volume: "raw", Path: "/dev/raw"}, {Volume: "none"}},
			},
			{Name: "b", Privileged: true, Devices: []manifest.Device{{Volume: "raw", Path: "/dev/raw"}}},
		},
		Volumes: []manifest.Volume{
			{Name: "mnt", Source: manifest.HostPath, Path: "/mnt"},
			{Name: "raw", Source: manifest.PersistentVolumeClaim, Claim: "c"},
		},
	}
	tests := []struct {
		name    string
		targets []string
		want    []string
	}{
		{name: "no target there", want: []string{"/host/disk"}},
		{name: "a target without a disk", targets: []string{"/host/mem/x"}, want: []string{"/host/disk", "/host/mem"}},
		{name: "a name that only begins alike", targets: []string{"/host/memory"}, want: []string{"/host/disk"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			v := volumes{storage: pathResolver{}, kubeletRoot: "/kubelet", targets: tt.targets}
			cs := v.containers(context.Background(), &pod)
			own := cs[0].Mounts[len(cs[0].Mounts)-3:]
			var got []string
			for _, b := range own[0].Below {
				got = append(got, b.Path)
			}
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Errorf("-want +got:\n%s", d)
			}
			if own[1].Below != nil {
				t.Errorf("below a subPath there is %v", own[1].Below)
			}
			if raw := own[2]; raw.Destination != "/dev/raw" || raw.Injected || raw.Backing.Disks[0].Name != "disk of claim c" {
				t.Errorf("raw volume: %+v", raw)
			}
			if raw := cs[1].Mounts[len(cs[1].Mounts)-1]; !raw.Injected {
				t.Error(`"*" means a device of a privileged container`)
			}
		})
	}
}

// A volume at the path of the service account's token is a volume: nothing is
// injected there then.
func TestVolumesAtInjectedPath(t *testing.T) {
	const token = "/var/run/secrets/kubernetes.io/serviceaccount"
	v := volumes{storage: pathResolver{}, kubeletRoot: "/kubelet"}
	cs := v.containers(t.Context(), &manifest.Pod{
		Containers: []manifest.Container{{Name: "c", Mounts: []manifest.Mount{{Volume: "v", Path: token}}}},
		Volumes:    []manifest.Volume{{Name: "v", Source: manifest.HostPath, Path: "/mnt"}},
	})
	var injected []bool
	for _, m := range cs[0].Mounts {
		if m.Destination == token {
			injected = append(injected, m.Injected)
		}
	}
	if d := cmp.Diff([]bool{false}, injected); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}
