package limits

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/nri-blkio/nri-blkio/test/e2e/cri"
	"github.com/nri-blkio/nri-blkio/test/e2e/lab"
)

// redirect is a volume whose path a tenant leads to another disk after the limits of the
// container were decided, and back once it is mounted. The runtime mounts it when the
// container is started, before it sends the event to plugins, so the test has no race.
type redirect struct {
	name, value string
	mounts      []cri.Mount // with the volume "v" of the tenant's directory
	want        lab.Disks
}

// TestRedirectedVolume verifies that limits apply to the disk that a volume is actually on: before the first
// instruction, after its path leads back to the declared disk, and with a plugin that starts later.
func TestRedirectedVolume(t *testing.T) {
	p := lab.StartPlugin(t)
	const one = "wbps=1048576"
	tests := []redirect{
		{"star", "* wbps=1Mi", []cri.Mount{{Path: "/data", Host: "v"}}, lab.Disks{"vda": one, "vdb": one, "vdd": one}},
		{"path", "/data wbps=1Mi", []cri.Mount{{Path: "/data", Host: "v"}}, lab.Disks{"vdb": one, "vdd": one}},
		// The mountpoint is /data/real, on a mount without a requested limit.
		{
			"link", "/data/link wbps=1Mi",
			[]cri.Mount{{Path: "/data", Host: "shared"}, {Path: "/data/link", Host: "v"}},
			lab.Disks{"vdb": one, "vdd": one},
		},
	}
	running := map[string]*cri.Container{}
	for _, tt := range tests {
		if cri.IsCRIO() { // it has mounted the volume when the path is led elsewhere
			delete(tt.want, "vdd")
		}
		running[tt.name] = tt.start(t)
		lab.WantIOMax(t, running[tt.name].Cgroup, tt.want)
	}
	p.Kill(t)
	lab.StartPlugin(t)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			lab.StaysIOMax(t, running[tt.name].Cgroup, tt.want)
		})
	}
}

// start creates the container, leads the volume to XFS, starts the container, and leads
// the volume back to ext4.
func (r *redirect) start(t *testing.T) *cri.Container {
	t.Helper()
	tenant, err := os.MkdirTemp(lab.Volumes["ext4"], "tenant")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(tenant) })
	for _, dir := range []string{"v", "shared/real"} {
		if err := os.MkdirAll(filepath.Join(tenant, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	cfg := cri.ContainerConfig{Name: r.name, Args: []string{"sleep"}}
	for _, m := range r.mounts {
		cfg.Mounts = append(cfg.Mounts, cri.Mount{Path: m.Path, Host: filepath.Join(tenant, m.Host)})
	}
	volume := filepath.Join(tenant, "v")
	steps := func(all ...error) {
		t.Helper()
		for _, err := range all {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	steps(os.Symlink("real", filepath.Join(tenant, "shared", "link")))
	k, err := lab.RunPod(t, r.name, lab.Annotations{lab.Limits + "container." + r.name: r.value}).Create(t.Context(), cfg)
	steps(err, os.Rename(volume, volume+".old"), os.Symlink(lab.Volumes["xfs"], volume))
	steps(k.Start(t.Context()), os.Remove(volume), os.Rename(volume+".old", volume))
	return k
}
