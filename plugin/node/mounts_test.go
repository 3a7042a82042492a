package node

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/inventory"
	"github.com/nri-blkio/nri-blkio/policy"
)

// manyMounts returns n mounts of a volume, as a pod can have them. Each text is one of its own, as in a message of the runtime.
func manyMounts(n int) []inventory.Mount {
	out := make([]inventory.Mount, 0, n)
	for i := range n {
		out = append(out, bind(strings.Clone(podVolumes+"empty-dir/v"), fmt.Sprintf("/%x", i), "rbind", "rprivate", "rw"))
	}
	return out
}

// tooMany is the end of the line that rejects a container.
const tooMany = ": the pod has too many mounts (about 4,000 fit: use fewer volumeMounts)"

// TestMountMemory verifies that pods with as many mounts as the API server and a message of the runtime have room for take a
// bounded memory, whether their containers are rejected or run without a limit.
func TestMountMemory(t *testing.T) {
	const pods, containers = 5, 3
	for name, annotations := range map[string]map[string]string{
		"rejected": {limitsKey + "containers": "* wbps=1Mi"},
		"beside":   {limitsKey + "container.other": "rootfs wbps=1Mi"},
	} {
		h, _ := tree(t, podCgroup)
		n := newNode(t, h)
		mounts := manyMounts(26_000)
		before := heap(t)
		for i := range pods {
			sb := sandbox(annotations)
			sb.ID, sb.UID, sb.Cgroup = fmt.Sprint("sb", i), fmt.Sprint("u", i), strings.Replace("/"+podCgroup, "pod1", fmt.Sprint("pod", i), 1)
			for k := range containers {
				c := ctr(fmt.Sprint("c", k))
				c.Spec = func() *inventory.Spec { return &inventory.Spec{Name: c.Name, Mounts: manyMounts(len(mounts))} }
				if _, err := n.create(t.Context(), sb, c, true); (err != nil) != (name == "rejected") {
					t.Fatalf("%s: %v", name, err)
				}
			}
		}
		used := (heap(t) - before) >> 10
		if t.Logf("%s: %d pods take %d KiB", name, pods, used); used > pods*5<<10 {
			t.Errorf("%s: %d pods take %d KiB", name, pods, used)
		}
		runtime.KeepAlive(n)
		runtime.KeepAlive(mounts)
	}
}

// TestTooManyMounts verifies that a container with more mounts than are kept is rejected if the policy has something for it,
// with one line, and takes no room from the other containers of its pod.
func TestTooManyMounts(t *testing.T) {
	large, small := manyMounts(26_000), manyMounts(30)
	for _, tt := range []struct {
		name        string
		annotations map[string]string
		policy      *policy.Policy
		want        string // error
	}{
		{"annotation", map[string]string{limitsKey + "container.large": "rootfs wbps=1Mi", limitsKey + "container.small": "* wbps=1Mi"}, rules(t, ""), "nri-blkio: " + limitsKey + "container.large" + tooMany},
		{"class", nil, rules(t, inProd), `nri-blkio: "rule prod"` + tooMany},
		{"pod as a whole", map[string]string{limitsKey + "pod-total": "rootfs wbps=1Mi"}, rules(t, ""), "nri-blkio: " + limitsKey + "pod-total" + tooMany},
		{"budget", nil, rules(t, "budgets: [{namespaces: [prod], limits: ['* wbps=1Gi']}]"), "nri-blkio: budgets" + tooMany},
		{"of another container", map[string]string{limitsKey + "container.small": "* wbps=1Mi"}, rules(t, ""), ""},
		{"ignored", map[string]string{limitsKey + "containers": "* wbps=1Mi"}, rules(t, "onError: {invalid: ignore}"), ""},
		{"observed", map[string]string{limitsKey + "containers": "* wbps=1Mi"}, rules(t, "mode: observe"), ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h, _ := tree(t, podCgroup)
			n := newNode(t, h)
			n.policy.Store(tt.policy)
			sb := batch()
			sb.Annotations = tt.annotations
			for range 2 {
				_, err := n.create(t.Context(), sb, ctr("large", large...), true)
				if (err != nil) != (tt.want != "") || err != nil && err.Error() != tt.want {
					t.Fatalf("got  %v\nwant %s", err, tt.want)
				}
			}
			if tt.want == "" || tt.name == "budget" { // which rejects a container without a limit
				return
			}
			if _, err := n.create(t.Context(), sb, ctr("small", small...), true); err != nil {
				t.Errorf("another container: %v", err)
			}
		})
	}
}

// TestMountsOfPod verifies that the room is that of a pod, and that a container gets the room of the one that it replaces.
func TestMountsOfPod(t *testing.T) {
	h, _ := tree(t, podCgroup)
	n := newNode(t, h)
	sb := sandbox(map[string]string{limitsKey + "containers": "* wbps=1Mi"})
	mounts := manyMounts(3500)
	for i, fits := range []bool{true, true, true, false} {
		name := "first"
		if i == 3 {
			name = "second"
		}
		c := ctr(name, mounts...)
		c.ID += fmt.Sprint(i)
		if _, err := n.create(t.Context(), sb, c, true); (err == nil) != fits {
			t.Errorf("container %d: %v", i, err)
		}
	}
	n.Removed("sb1", "id-first2")
	if _, err := n.create(t.Context(), sb, ctr("second", mounts...), true); err == nil {
		t.Error("the facts of a removed container are kept, and do not count")
	}
	other := sandbox(sb.Annotations)
	other.ID, other.UID, other.Cgroup = "sb2", "u2", "/kubepods.slice/kubepods-pod2.slice"
	if _, err := n.create(t.Context(), other, ctr("second", mounts...), true); err != nil {
		t.Errorf("another pod: %v", err)
	}
}

// TestAdoptedMounts verifies that a container with too many mounts that runs when the plugin starts is limited on its known
// mounts, and has the error in its record; and that one whose creation was not seen is rejected when it starts.
func TestAdoptedMounts(t *testing.T) {
	h, _ := tree(t, podCgroup, cgroupOf("a"), cgroupOf("b"))
	n := newNode(t, h)
	sb := sandbox(map[string]string{limitsKey + "containers": "rootfs wbps=1Mi"})
	running := ctr("a", manyMounts(26_000)...)
	running.State = Running
	n.Synchronize([]*Sandbox{sb}, []*Container{running})
	n.pass(t.Context())
	if r := recordOf(t, n, cgroupOf("a")); !strings.HasSuffix(r.Error, tooMany) || r.Settings.DevLimits()[rootDisk.Dev][blkio.Wbps] != 1<<20 {
		t.Errorf("error %q, limits %v", r.Error, r.Settings)
	}
	if err := n.start(t.Context(), sb, ctr("b", manyMounts(26_000)...), true); err == nil || !strings.HasSuffix(err.Error(), tooMany) {
		t.Errorf("a start: %v", err)
	}
}

// TestClaimOfManyMounts verifies that a container does not evade the limits of its claim by so many mounts that the one of
// the claim is not kept.
func TestClaimOfManyMounts(t *testing.T) {
	h, _ := tree(t, podCgroup)
	n := newNode(t, h)
	n.SetLive("u1", &Live{Namespace: "prod", Name: "db-0", Claims: claimsOf("wbps=2Mi")})
	claim := bind("/mnt/data/x", "/data", "rbind")
	for _, mounts := range [][]inventory.Mount{append([]inventory.Mount{claim}, manyMounts(26_000)...), append(manyMounts(26_000), claim)} {
		if got, err := n.create(t.Context(), sandbox(nil), ctr("a", mounts...), true); err == nil || err.Error() != "nri-blkio: claims"+tooMany {
			t.Errorf("%v, %v", got, err)
		}
	}
	got, err := n.create(t.Context(), sandbox(nil), ctr("a", append(manyMounts(100), claim)...), true)
	if err != nil || got.DevLimits()[dataDisk.Dev][blkio.Wbps] != 2<<20 {
		t.Errorf("fewer mounts: %v, %v", got, err)
	}
}
