package main

import (
	"context"
	"iter"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/nri-blkio/nri-blkio/blkio"
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
			Disks:   []blkio.Disk{{Dev: blkio.Dev{Major: unknownMajor}, Name: name}},
			Warning: &blkio.Warning{Text: "its disk is known only once the volume is mounted; the container is refused then if it has none on this node"},
		}
	}
	tests := []struct {
		name   string
		source corev1.VolumeSource
		mount  corev1.VolumeMount
		want   policy.Mount
	}{
		{
			name:   "hostPath",
			source: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/srv"}},
			want:   policy.Mount{Backing: onPath("/srv")},
		},
		{
			name:   "hostPath with a subPath, read-only",
			source: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/srv"}},
			mount:  corev1.VolumeMount{SubPath: "a/b", ReadOnly: true},
			want:   policy.Mount{Backing: onPath("/srv/a/b"), ReadOnly: true, Volume: "v"},
		},
		{
			name:   "hostPath with a subPathExpr",
			source: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/srv"}},
			mount:  corev1.VolumeMount{SubPathExpr: "$(NAME)"},
			want:   policy.Mount{Backing: onPath("/srv"), Volume: "v"},
		},
		{
			name:   "emptyDir",
			source: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}},
			want:   policy.Mount{Backing: emptyDir, Volume: "v"},
		},
		{name: "gitRepo", source: corev1.VolumeSource{GitRepo: &corev1.GitRepoVolumeSource{}}, want: policy.Mount{Backing: emptyDir, Volume: "v"}},
		{
			name:   "emptyDir with a subPath",
			source: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}},
			mount:  corev1.VolumeMount{SubPath: "a"},
			want:   policy.Mount{Backing: emptyDir, Volume: "v"},
		},
		{
			name:   "emptyDir in memory",
			source: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}},
			want:   policy.Mount{Backing: tmpfs, Volume: "v"},
		},
		{
			name:   "emptyDir of huge pages",
			source: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumHugePages}},
			want:   policy.Mount{Backing: blkio.Backing{FSType: "hugetlbfs", Reason: "hugetlbfs is memory, not a disk"}, Volume: "v"},
		},
		{name: "configMap", source: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{}}, want: policy.Mount{Backing: tmpfs, ReadOnly: true, Volume: "v"}},
		{name: "secret", source: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{}}, want: policy.Mount{Backing: tmpfs, ReadOnly: true, Volume: "v"}},
		{name: "projected", source: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{}}, want: policy.Mount{Backing: tmpfs, ReadOnly: true, Volume: "v"}},
		{name: "downwardAPI", source: corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{}}, want: policy.Mount{Backing: tmpfs, ReadOnly: true, Volume: "v"}},
		{name: "image", source: corev1.VolumeSource{Image: &corev1.ImageVolumeSource{}}, want: policy.Mount{Backing: rootfs, ReadOnly: true}},
		{
			name:   "NFS",
			source: corev1.VolumeSource{NFS: &corev1.NFSVolumeSource{}},
			want:   policy.Mount{Backing: blkio.Backing{FSType: "nfs", Reason: "nfs is a network filesystem: there is no local disk to limit"}},
		},
		{
			name:   "claim",
			source: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}},
			want:   policy.Mount{Backing: unknown("disk of claim c")},
		},
		{name: "CSI", source: corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{}}, want: policy.Mount{Backing: unknown("disk of CSI volume v"), Volume: "v"}},
		{
			name:   "claim with a subPath", // its directory has the PersistentVolume's name
			source: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}},
			mount:  corev1.VolumeMount{SubPath: "a"},
			want:   policy.Mount{Backing: unknown("disk of claim c")},
		},
		{name: "ephemeral", source: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}, want: policy.Mount{Backing: unknown("disk of volume v")}},
		{name: "a kind that is not known yet", want: policy.Mount{Backing: unknown("disk of volume v")}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			v := volumes{storage: pathResolver{}, kubeletRoot: "/kubelet", rootfs: rootfs}
			tt.mount.Name, tt.mount.MountPath = "v", "/data/"
			tt.want.Destination = "/data"
			cs, problems := v.containers(context.Background(), &corev1.PodSpec{
				Containers: []corev1.Container{{Name: "c", VolumeMounts: []corev1.VolumeMount{tt.mount}}},
				Volumes:    []corev1.Volume{{Name: "v", VolumeSource: tt.source}},
			})
			if len(problems) > 0 {
				t.Fatal(problems)
			}
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
	yes := true
	spec := corev1.PodSpec{
		Containers: []corev1.Container{
			{
				Name: "a",
				VolumeMounts: []corev1.VolumeMount{
					{Name: "mnt", MountPath: "/host"}, {Name: "mnt", MountPath: "/sub", SubPath: "disk"},
				},
				VolumeDevices: []corev1.VolumeDevice{{Name: "raw", DevicePath: "/dev/raw"}, {Name: "none"}},
			},
			{
				Name: "b", SecurityContext: &corev1.SecurityContext{Privileged: &yes},
				VolumeDevices: []corev1.VolumeDevice{{Name: "raw", DevicePath: "/dev/raw"}},
			},
		},
		Volumes: []corev1.Volume{
			{Name: "mnt", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/mnt"}}},
			{Name: "raw", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}}},
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
			cs, problems := v.containers(context.Background(), &spec)
			if d := cmp.Diff([]string{`container a: unknown volume device "none"`}, problems); d != "" {
				t.Errorf("-want +got:\n%s", d)
			}
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
	cs, _ := v.containers(t.Context(), &corev1.PodSpec{
		Containers: []corev1.Container{{Name: "c", VolumeMounts: []corev1.VolumeMount{{Name: "v", MountPath: token}}}},
		Volumes: []corev1.Volume{
			{Name: "v", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/mnt"}}},
		},
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

func TestVolumesOrder(t *testing.T) {
	v := volumes{storage: pathResolver{}, kubeletRoot: "/kubelet"}
	cs, problems := v.containers(context.Background(), &corev1.PodSpec{
		InitContainers: []corev1.Container{{Name: "init"}},
		Containers:     []corev1.Container{{Name: "b", VolumeMounts: []corev1.VolumeMount{{Name: "none"}}}, {Name: "a"}},
	})
	var names []string
	for _, c := range cs {
		names = append(names, c.Name)
	}
	if d := cmp.Diff([]string{"init", "b", "a"}, names); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	if d := cmp.Diff([]string{`container b: unknown volume "none"`}, problems); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}
