package check

import (
	"context"
	"iter"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/inventory"
	"github.com/nri-blkio/nri-blkio/plugin/manifest"
	"github.com/nri-blkio/nri-blkio/policy"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// pathResolver answers with the path itself, as the name of a disk.
type pathResolver struct{}

func (pathResolver) Physical(dev blkio.Dev) ([]blkio.Disk, error) {
	return []blkio.Disk{{Dev: dev}}, nil
}

func (pathResolver) Under(context.Context, blkio.Dev) []blkio.Disk { return nil }

func (pathResolver) Links(blkio.Dev) []string { return nil }

func (pathResolver) Resolve(_ context.Context, p string) *blkio.Backing { return onPath(p) }

// submounts has the mounts below /mnt.
func submounts() map[string]*blkio.Backing {
	return map[string]*blkio.Backing{"disk": onPath("/mnt/disk"), "mem": {FSType: "tmpfs", Reason: "tmpfs is memory, not a disk"}}
}

func (pathResolver) Submounts(_ context.Context, p string) iter.Seq2[string, *blkio.Backing] {
	if p == "/mnt" {
		return maps.All(submounts())
	}
	return maps.All(map[string]*blkio.Backing{})
}

func (pathResolver) Below(_ context.Context, p, rel string) (string, *blkio.Backing, bool) {
	at, _, _ := strings.Cut(rel, "/")
	b, ok := submounts()[at]
	return at, b, ok && p == "/mnt"
}

func (pathResolver) Refresh(context.Context) error { return nil }

// Device has no answer: a manifest has no device numbers.
func (pathResolver) Device(dev blkio.Dev) blkio.Backing { panic(dev) }

func onPath(p string) *blkio.Backing {
	return &blkio.Backing{FSType: "ext4", Disks: []blkio.Disk{{Name: p}}}
}

// volumeTest is a volume of a pod, and its mount in a container as policy gets it.
type volumeTest struct {
	name   string
	source manifest.Volume
	mount  manifest.Mount
	want   policy.Mount
}

// testNode has each path on a disk of its own name, and the writable layers in a directory.
func testNode() Node {
	return Node{
		Storage: pathResolver{}, KubeletRoot: "/kubelet",
		Layers: inventory.Layers{Default: inventory.Layer{Dir: "/var/lib/containerd"}},
	}
}

// findIn returns the containers of a pod with an annotation for all of them.
func findIn(t *testing.T, pod *manifest.Pod, limits string) []policy.Container {
	t.Helper()
	n := testNode()
	cs, err := n.find(t.Context(), "", pod, annotation.Parse(map[string]string{limitsOf + "containers": limits}).Targets())
	if err != nil {
		t.Fatal(err)
	}
	return cs
}

func (tt volumeTest) run(t *testing.T) {
	tt.source.Name, tt.mount.Volume, tt.mount.Path = "v", "v", "/data/"
	tt.want.Destination = "/data"
	cs := findIn(t, &manifest.Pod{
		Containers: []manifest.Container{{Name: "c", Mounts: []manifest.Mount{tt.mount}}},
		Volumes:    []manifest.Volume{tt.source},
	}, "/data rbps=1Mi; @v rbps=1Mi")
	mounts := cs[0].Mounts
	if d := cmp.Diff(tt.want, mounts[len(mounts)-1]); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	for _, m := range mounts[:len(mounts)-1] {
		if !m.Injected {
			t.Errorf("%s is not marked as injected", m.Destination)
		}
	}
}

func TestHostPaths(t *testing.T) {
	source := manifest.Volume{Source: manifest.HostPath, Path: "/srv"}
	for _, tt := range []volumeTest{
		{name: "no subPath", source: source, want: policy.Mount{Backing: onPath("/srv")}},
		{
			name: "a subPath, read-only", source: source, mount: manifest.Mount{SubPath: "a/b", ReadOnly: true},
			want: policy.Mount{Backing: onPath("/srv/a/b"), ReadOnly: true, Volume: "v"},
		},
		{
			name: "a subPathExpr", source: source, mount: manifest.Mount{SubPath: "$(NAME)"},
			want: policy.Mount{Backing: onPath("/srv"), Volume: "v"},
		},
		{
			name: "below the kubelet's directory of another pod", source: manifest.Volume{Source: manifest.HostPath, Path: "/kubelet/pods/u2/volumes/kubernetes.io~empty-dir/v/"},
			want: policy.Mount{Backing: onPath("/kubelet/pods/u2/volumes/kubernetes.io~empty-dir/v")},
		},
	} {
		t.Run(tt.name, tt.run)
	}
}

// TestKubeletVolumes covers volumes that the kubelet makes itself. Their directories have the names of the
// volumes.
func TestKubeletVolumes(t *testing.T) {
	emptyDir, tmpfs := onPath("/kubelet/pods"), &blkio.Backing{FSType: "tmpfs", Reason: "tmpfs is memory, not a disk"}
	for _, tt := range []struct {
		source, medium, plugin string
		backing                *blkio.Backing
		readOnly               bool
	}{
		{"emptyDir", "", "empty-dir", emptyDir, false},
		{"emptyDir", "Memory", "empty-dir", tmpfs, false},
		{"emptyDir", "HugePages-2Mi", "empty-dir", &blkio.Backing{FSType: "hugetlbfs", Reason: "hugetlbfs is memory, not a disk"}, false},
		{"gitRepo", "", "git-repo", emptyDir, false},
		{"configMap", "", "configmap", emptyDir, true},
		{"secret", "", "secret", tmpfs, true},
		{"projected", "", "projected", tmpfs, true},
		{"downwardAPI", "", "downward-api", tmpfs, true},
	} {
		whole := volumeTest{
			source: manifest.Volume{Source: tt.source, Medium: tt.medium},
			want:   policy.Mount{Backing: tt.backing, ReadOnly: tt.readOnly, Volume: "v", VolumePlugin: "kubernetes.io/" + tt.plugin},
		}
		t.Run(tt.source+tt.medium, whole.run)
		part := whole
		part.mount.SubPath, part.want.VolumePlugin = "a", ""
		t.Run(tt.source+tt.medium+" with a subPath", part.run)
	}
}

// TestOtherVolumes covers volumes that drivers and provisioners make when the pod is created.
func TestOtherVolumes(t *testing.T) {
	unknown := func(name string) *blkio.Backing {
		return &blkio.Backing{
			Disks:   []blkio.Disk{blkio.UnknownDisk(0, name)},
			Warning: &blkio.Warning{Text: "disk unknown until the volume is mounted; if it then has no disk on this node, the container is rejected"},
		}
	}
	network := func(fstype string) *blkio.Backing {
		return &blkio.Backing{FSType: fstype, Reason: fstype + " is a network filesystem: there is no local disk to limit"}
	}
	claim := manifest.Volume{Source: manifest.PersistentVolumeClaim, Claim: "c"}
	subPath := manifest.Mount{SubPath: "a"}
	for _, tt := range []volumeTest{
		{name: "image", source: manifest.Volume{Source: "image"}, want: policy.Mount{Backing: onPath("/var/lib/containerd"), ReadOnly: true}},
		{name: "NFS", source: manifest.Volume{Source: "nfs"}, want: policy.Mount{Backing: network("nfs")}},
		{name: "CephFS", source: manifest.Volume{Source: "cephfs"}, want: policy.Mount{Backing: network("ceph")}},
		{name: "Azure Files", source: manifest.Volume{Source: "azureFile"}, want: policy.Mount{Backing: network("cifs")}},
		{name: "NFS with a subPath", source: manifest.Volume{Source: "nfs"}, mount: subPath, want: policy.Mount{Backing: network("nfs"), Volume: "v"}},
		{name: "claim", source: claim, want: policy.Mount{Backing: unknown("disk of claim c")}},
		// Its directory has the PersistentVolume's name.
		{name: "claim with a subPath", source: claim, mount: subPath, want: policy.Mount{Backing: unknown("disk of claim c")}},
		{name: "CSI", source: manifest.Volume{Source: "csi"}, want: policy.Mount{Backing: unknown("disk of CSI volume v"), Volume: "v", VolumePlugin: "kubernetes.io/csi"}},
		{name: "ephemeral", source: manifest.Volume{Source: "ephemeral"}, want: policy.Mount{Backing: unknown("disk of volume v")}},
		{name: "a kind that is not known yet", source: manifest.Volume{Source: "quantumStore"}, want: policy.Mount{Backing: unknown("disk of volume v")}},
	} {
		t.Run(tt.name, tt.run)
	}
}

// TestVolumesBelowAndDevices verifies the disks of a path below a volume that has a disk of its own, and of a
// volume that is a disk.
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
	for _, tt := range []struct {
		name   string
		limits string
		want   []string
	}{
		{"all disks", "* rbps=1Mi", []string{"/host/disk"}},
		{"a path on a disk below", "/host/disk/x rbps=1Mi", []string{"/host/disk"}},
		{"a path below without a disk", "* rbps=1Mi; /host/mem/x rbps=1Mi", []string{"/host/disk", "/host/mem"}},
		{"a name that only begins alike", "/host/memory rbps=1Mi", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cs := findIn(t, &pod, tt.limits)
			own := cs[0].Mounts[len(cs[0].Mounts)-3:]
			var got []string
			for _, b := range own[0].Below {
				got = append(got, b.Path)
			}
			slices.Sort(got)
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Errorf("-want +got:\n%s", d)
			}
			if own[1].Below != nil {
				t.Errorf("below a subPath there is %v", own[1].Below)
			}
			raw := own[2]
			if raw.Destination != "/dev/raw" || raw.Injected || raw.Backing.Disks[0].Name != "disk of claim c" || raw.Backing.Warning == nil {
				t.Errorf("raw volume: %+v", raw)
			}
			if raw := cs[1].Mounts[len(cs[1].Mounts)-1]; !raw.Injected {
				t.Error(`"*" means a device of a privileged container`)
			}
		})
	}
}

// TestVolumesAtInjectedPath verifies that a volume at the path of the service account's token is a volume:
// nothing is injected there then.
func TestVolumesAtInjectedPath(t *testing.T) {
	const token = "/var/run/secrets/kubernetes.io/serviceaccount"
	cs := findIn(t, &manifest.Pod{
		Containers: []manifest.Container{{Name: "c", Mounts: []manifest.Mount{{Volume: "v", Path: token}}}},
		Volumes:    []manifest.Volume{{Name: "v", Source: manifest.HostPath, Path: "/mnt"}},
	}, "* rbps=1Mi")
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
