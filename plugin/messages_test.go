package plugin

import (
	"testing"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/runtime-tools/generate"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	rspec "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/inventory"
	"github.com/nri-blkio/nri-blkio/plugin/node"
	"github.com/nri-blkio/nri-blkio/plugin/podfacts"
	"github.com/nri-blkio/nri-blkio/policy"
)

// TestDescriptions verifies that each field of NRI's messages that a decision depends on is in the description.
func TestDescriptions(t *testing.T) {
	sb := &api.PodSandbox{
		Id: "sb1", Name: "db-0", Namespace: "prod", Uid: "u1", Annotations: map[string]string{"a": "b"}, RuntimeHandler: "kata",
		Linux: &api.LinuxPodSandbox{CgroupParent: "/kubepods.slice"},
	}
	wantSandbox := &node.Sandbox{ID: "sb1", UID: "u1", Handler: "kata", Cgroup: "/kubepods.slice", Facts: podfacts.Facts{Name: "db-0", Namespace: "prod", Annotations: map[string]string{"a": "b"}}}
	if d := cmp.Diff(wantSandbox, sandboxOf(sb)); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	c := &api.Container{
		Id: "id", PodSandboxId: "sb1", Name: "db", Pid: 42, State: api.ContainerState_CONTAINER_PAUSED, CreatedAt: 7, Annotations: map[string]string{markKey: "true", "a": "b"},
		Mounts: []*api.Mount{{Source: "/srv", Destination: "/data", Type: "bind", Options: []string{"ro"}}, {Type: "proc"}},
		Linux: &api.LinuxContainer{
			CgroupsPath: "a:b:c",
			Devices: []*api.LinuxDevice{
				{Path: "/dev/vdb", Type: "b", Major: 254, Minor: 16},
				{Path: "/dev/all", Type: "c", Major: -1, Minor: 3},
			},
			Resources: &api.LinuxResources{Memory: &api.LinuxMemory{Limit: api.Int64(1 << 20)}, Unified: map[string]string{"memory.high": "max"}},
		},
	}
	want := &node.Container{
		ID: "id", Sandbox: "sb1", Name: "db", PID: 42, State: node.Running, CreatedAt: 7, Cgroup: "a:b:c",
		OCI: node.OCI{MemoryMax: 1 << 20, Unified: map[string]string{"memory.high": "max"}, Mark: "true"},
	}
	got := containerOf(c)
	if d := cmp.Diff(want, got, cmpopts.IgnoreFields(node.Container{}, "Spec")); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	wantSpec := &inventory.Spec{
		Name:    "db",
		Mounts:  []inventory.Mount{{Source: "/srv", Destination: "/data", Type: "bind", Options: inventory.ParseOptions("ro")}, {Type: "proc"}},
		Devices: []inventory.Device{{Path: "/dev/vdb", Type: "b", Dev: blkio.Dev{Major: 254, Minor: 16}}},
	}
	if d := cmp.Diff(wantSpec, got.Spec()); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	if got := containerOf(&api.Container{}); got.MemoryMax != 0 || got.Unified != nil || got.State != node.Stopped || len(got.Spec().Mounts) > 0 {
		t.Errorf("of an empty message: %+v", got)
	}
}

func TestStateOf(t *testing.T) {
	for state, want := range map[api.ContainerState]node.State{
		api.ContainerState_CONTAINER_UNKNOWN: node.Stopped,
		api.ContainerState_CONTAINER_CREATED: node.Created,
		api.ContainerState_CONTAINER_PAUSED:  node.Running,
		api.ContainerState_CONTAINER_RUNNING: node.Running,
		api.ContainerState_CONTAINER_STOPPED: node.Stopped,
	} {
		if got := stateOf(state); got != want {
			t.Errorf("%v: %v, want %v", state, got, want)
		}
	}
}

// specGenerator is as much of a runtime's generator as unified values take.
type specGenerator struct {
	generate.UnderlyingGenerator
	spec *rspec.Spec
}

func (g specGenerator) Spec() *rspec.Spec { return g.spec }

func (g specGenerator) AddLinuxResourcesUnified(key, value string) {
	if g.spec.Linux.Resources.Unified == nil {
		g.spec.Linux.Resources.Unified = map[string]string{}
	}
	g.spec.Linux.Resources.Unified[key] = value
}

// TestAdjustment verifies the OCI spec that results, by NRI's own generator. The runtime gets the same one.
func TestAdjustment(t *testing.T) {
	setting := func(key blkio.Key, minor uint32, amount blkio.Amount) policy.Setting {
		dev := blkio.Dev{Major: 254, Minor: minor}
		if !key.IsRate() {
			dev = blkio.Dev{}
		}
		return policy.Setting{Value: blkio.Value{Address: blkio.Address{Key: key, Dev: dev}, Amount: amount}}
	}
	for name, tt := range map[string]struct {
		settings policy.Settings
		want     map[string]string
	}{
		"none":      {},
		"one disk":  {policy.Settings{setting(blkio.Wbps, 16, 52428800), setting(blkio.Riops, 16, 2000)}, map[string]string{"io.max": "254:16 wbps=52428800 riops=2000"}},
		"two disks": {policy.Settings{setting(blkio.Wbps, 0, 1), setting(blkio.Wbps, 16, 1)}, map[string]string{"io.max": "254:0 wbps=1\n254:16 wbps=1"}},
		"weight":    {policy.Settings{setting(blkio.Weight, 0, 50)}, map[string]string{"io.weight": "50"}},
	} {
		t.Run(name, func(t *testing.T) {
			spec := &rspec.Spec{Linux: &rspec.Linux{Resources: &rspec.LinuxResources{}}}
			if err := generate.SpecGenerator(specGenerator{spec: spec}).Adjust(adjustment(tt.settings)); err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tt.want, spec.Linux.Resources.Unified); d != "" {
				t.Errorf("unified (-want +got):\n%s", d)
			}
		})
	}
}

// BenchmarkMessages measures the messages of a creation: the description of a container with 15 mounts, and the
// adjustment.
func BenchmarkMessages(b *testing.B) {
	sb, c := sandbox(map[string]string{limitsKey + "containers": "rootfs wbps=1Mi"}), ctr("a")
	for range 15 {
		c.Mounts = append(c.Mounts, &api.Mount{Type: "bind", Source: "/srv", Destination: "/data", Options: []string{"rbind", "rw"}})
	}
	settings := policy.Settings{{Value: blkio.Value{Address: blkio.Address{Key: blkio.Wbps, Dev: blkio.Dev{Major: 254}}, Amount: 1 << 20}}}
	b.ReportAllocs()
	for b.Loop() {
		if sandboxOf(sb).ID == "" || len(containerOf(c).Spec().Mounts) == 0 || marked("id", settings) == nil {
			b.Fatal("empty")
		}
	}
}
