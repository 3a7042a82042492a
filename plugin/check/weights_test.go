package check

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/manifest"
	"github.com/nri-blkio/nri-blkio/policy"
)

// weighing returns a checker and the questions that it was asked. On the disk of its node a joining pod gets
// one percent for each unit of weight.
func weighing(d Disk) (*Checker, *[]Joining) {
	c := testChecker()
	c.Node.Disks = map[blkio.Dev]Disk{sdaDev: d}
	var asked []Joining
	c.Node.Share = func(_ blkio.Dev, pod Joining) Shares {
		asked = append(asked, pod)
		s := Shares{BesideOne: PodShares{Pod: float64(pod.Weight) / 100}, AtLeast: PodShares{Pod: float64(pod.Weight) / 1000}, Rivals: 3}
		for _, weight := range pod.Containers {
			s.BesideOne.Containers = append(s.BesideOne.Containers, float64(weight)/100)
			s.AtLeast.Containers = append(s.AtLeast.Containers, float64(weight)/1000)
		}
		return s
	}
	return c, &asked
}

// TestWeightEffects covers the share of each container with a weight, and of the pod with a pod-total.
func TestWeightEffects(t *testing.T) {
	c, asked := weighing(Disk{State: "on demand", Origin: "calibration"})
	pod := podOf(map[string]string{weightOf + "container.a": "50", weightOf + "container.init": "20", weightOf + "pod-total": "80"}, "init", "a", "b")
	pod.Containers[0].Role = manifest.Init
	r := c.Pod(t.Context(), pod)
	row := func(container string, weight uint32) WeightEffect {
		return WeightEffect{
			Container: container, Disk: "sda", Weight: weight, BesideOne: float64(weight) / 100, AtLeast: float64(weight) / 1000, Rivals: 3,
			State: "on demand", Model: "calibration",
		}
	}
	if d := cmp.Diff([]WeightEffect{row("a", 50), row("", 80)}, r.Weights); d != "" || len(r.Notes)+len(r.Warnings) > 0 {
		t.Errorf("notes %q, warnings %q; -want +got:\n%s", r.Notes, r.Warnings, d)
	}
	if len(*asked) != 1 { // for each weight, a pod of a thousand containers would take minutes
		t.Errorf("the shares were computed %d times", len(*asked))
	}
	for _, j := range *asked {
		if d := cmp.Diff(Joining{Weight: 80, Containers: []uint32{50, 100}}, j); d != "" {
			t.Errorf("-want +got:\n%s", d)
		}
	}
}

// TestWeightWithoutEffect verifies the reasons why a weight has no effect.
func TestWeightWithoutEffect(t *testing.T) {
	off := Disk{State: "no", Reason: "the node policy has weights: off for this disk"}
	for name, tt := range map[string]struct {
		disk   Disk
		change func(*Checker)
		weight string
		want   []WeightEffect
	}{
		"off": {off, nil, "50", []WeightEffect{{Container: "a", Disk: "sda", Weight: 50, State: "no", Reason: off.Reason}}},
		"enabled by another program, and not wanted": {
			Disk{State: "on", Origin: "foreign", Reason: off.Reason}, nil, "50", []WeightEffect{{Container: "a", Disk: "sda", Weight: 50, State: "on", Reason: off.Reason}},
		},
		"removed": {off, func(c *Checker) { c.Node.Disks = map[blkio.Dev]Disk{} }, "50", []WeightEffect{
			{Container: "a", Disk: "sda", Weight: 50, State: "no", Reason: "the disk is not there"},
		}},
		"no weight":       {off, nil, "", nil},
		"an unknown node": {off, func(c *Checker) { c.Node.Storage = nil }, "50", nil},
	} {
		t.Run(name, func(t *testing.T) {
			c, asked := weighing(tt.disk)
			if tt.change != nil {
				tt.change(c)
			}
			annotations := map[string]string{limitsOf + "containers": "rootfs rbps=1Mi"}
			if tt.weight != "" {
				annotations[weightOf+"containers"] = tt.weight
			}
			r := c.Pod(t.Context(), podOf(annotations, "a"))
			if d := cmp.Diff(tt.want, r.Weights); d != "" || len(*asked) > 0 || len(r.Errors) > 0 {
				t.Errorf("errors %q, asked %v; -want +got:\n%s", r.Errors, *asked, d)
			}
		})
	}
}

// TestGuarantees verifies that check names the guarantee of a namespace, and the disks without it. A stacked disk is not named: io.cost works on
// those below.
func TestGuarantees(t *testing.T) {
	const head = "apiVersion: blkio.noderesource.dev/v1alpha1\nkind: NodePolicy\nreserve: {system: 10%}\nbudgets: [{namespaces: [prod], guarantee: 30%}]\n"
	const note = "namespace prod is guaranteed 30% of each disk with io.cost (of each disk with io.cost 30% is guaranteed and 10% is reserved; 50% can still be guaranteed)"
	for _, tt := range []struct {
		namespace, more string
		want            []string
	}{
		{"prod", "", []string{note, "no guarantee on sdb: off; sdc: foreign"}},
		{"web", "", nil},
		{"prod", "mode: observe", nil},
	} {
		c, asked := weighing(Disk{Name: "sda", State: "on demand", Origin: "calibration"})
		c.Node.Disks[blkio.Dev{Major: 8, Minor: 16}] = Disk{Name: "sdb", State: "no", Reason: "off"}
		c.Node.Disks[blkio.Dev{Major: 8, Minor: 32}] = Disk{Name: "sdc", State: "on", Reason: "foreign"}
		c.Node.Disks[blkio.Dev{Major: 253}] = Disk{Name: "dm-0", State: "no", Reason: "stacked", Stacked: true}
		p, err := policy.ParseFile([]byte(head + tt.more))
		if err != nil {
			t.Fatal(err)
		}
		c.Policy = p
		for _, annotations := range []map[string]string{nil, {weightOf + "containers": "50"}} {
			m := podOf(annotations, "a")
			m.Namespace = tt.namespace
			if diff := cmp.Diff(tt.want, c.Pod(t.Context(), m).Notes); diff != "" {
				t.Errorf("%s, %s, %v: -want +got:\n%s", tt.namespace, tt.more, annotations, diff)
			}
		}
		if got := (*asked)[0].Budget.Guarantee; (got != 0) != (tt.want != nil) {
			t.Errorf("%s, %s: the pod joins with a guarantee of %s", tt.namespace, tt.more, got)
		}
	}
}

// TestWeightOfClaim verifies that the disk of a claim is unknown until it is mounted.
func TestWeightOfClaim(t *testing.T) {
	c, _ := weighing(Disk{State: "on"})
	m := podOf(map[string]string{weightOf + "containers": "/claim 50"}, "a")
	m.Containers[0].Mounts = []manifest.Mount{{Volume: "v", Path: "/claim"}}
	m.Volumes = []manifest.Volume{{Name: "v", Source: manifest.PersistentVolumeClaim, Claim: "c"}}
	want := []WeightEffect{{Container: "a", Disk: "disk of claim c", Weight: 50, State: "unknown", Reason: "the disk is unknown until the volume is mounted"}}
	if d := cmp.Diff(want, c.Pod(t.Context(), m).Weights); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

// TestGuessedModel verifies that a weight counts with the kernel's model as well, with a note.
func TestGuessedModel(t *testing.T) {
	c, _ := weighing(Disk{State: "on demand", Origin: "kernel", Guess: true})
	r := c.Pod(t.Context(), podOf(map[string]string{weightOf + "containers": "50"}, "a", "b"))
	want := []string{"sda: the model is the kernel's guess, so weights may divide it badly: calibrate the disk, or give its model in the node policy"}
	if d := cmp.Diff(want, r.Notes); d != "" || len(r.Weights) != 2 {
		t.Errorf("%+v; -want +got:\n%s", r.Weights, d)
	}
}

// TestConflictingTotal verifies that the pod has a line whether its containers are created or not.
func TestConflictingTotal(t *testing.T) {
	annotations := map[string]string{weightOf + "pod-total": "/a 50; /b 80"}
	for action, want := range map[policy.Action]WeightEffect{
		policy.Reject: {Disk: "/kubelet/pods", Weight: 50, State: "no", Reason: "no container of the pod is created"},
		policy.Ignore: {Disk: "/kubelet/pods", Weight: 50, BesideOne: 0.5, AtLeast: 0.05, Rivals: 3, State: "on"},
	} {
		c, _ := weighing(Disk{State: "on"})
		c.Policy.OnError.Invalid = action
		m := podOf(annotations, "a")
		m.Containers[0].Mounts = []manifest.Mount{{Volume: "v", Path: "/a"}, {Volume: "w", Path: "/b"}}
		m.Volumes = []manifest.Volume{{Name: "v", Source: manifest.EmptyDir}, {Name: "w", Source: manifest.EmptyDir}}
		r := c.Pod(t.Context(), m)
		if d := cmp.Diff([]WeightEffect{want}, r.Weights); d != "" || len(r.Errors) != 1 || len(r.Effects) != 1 {
			t.Errorf("%s: errors %q, effects %q; -want +got:\n%s", action, r.Errors, r.Effects, d)
		}
	}
}

// TestWeightOnNetwork verifies that a weight for all disks is not reported for volumes without a disk, unless
// they are on a network.
func TestWeightOnNetwork(t *testing.T) {
	c, _ := weighing(Disk{State: "on"})
	m := podOf(map[string]string{weightOf + "container.a": "50"}, "a", "b")
	for i := range m.Containers {
		m.Containers[i].Mounts = []manifest.Mount{{Volume: "share", Path: "/share\x1b"}, {Volume: "mem", Path: "/mem"}}
	}
	m.Volumes = []manifest.Volume{{Name: "share", Source: "nfs"}, {Name: "mem", Source: manifest.EmptyDir, Medium: "Memory"}}
	want := []string{`container a: the weight has no effect on "/share\x1b": nfs is a network filesystem: there is no local disk to limit`}
	r := c.Pod(t.Context(), m)
	if d := cmp.Diff(want, r.Notes); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

// TestWeightBudget verifies what check says about a budget of weights, and that the share beside all pods is unknown then.
func TestWeightBudget(t *testing.T) {
	const budgets = "apiVersion: blkio.noderesource.dev/v1alpha1\nkind: NodePolicy\nbounds: {weight: {max: 500}}\nbudgets: [{namespaces: [tenant-a], weight: 300}]"
	const note = " counts for the budget of namespace tenant-a: 300 for all of its pods that use a disk, and "
	for _, tt := range []struct {
		name, namespace string
		annotations     map[string]string
		budget          uint32
		notes           []string
	}{
		{"below", "tenant-a", map[string]string{weightOf + "containers": "120"}, 300, []string{"a weight of 240" + note + "above that, weights are scaled down"}},
		{"above", "tenant-a", map[string]string{weightOf + "container.a": "400"}, 300, []string{"a weight of 500" + note + "the pod alone is scaled down to 300"}},
		{"as a whole", "tenant-a", map[string]string{weightOf + "pod-total": "50"}, 300, []string{"a weight of 50" + note + "above that, weights are scaled down"}},
		{"another namespace", "web", map[string]string{weightOf + "containers": "120"}, 0, nil},
	} {
		c, asked := weighing(Disk{State: "on demand", Origin: "calibration"})
		p, err := policy.ParseFile([]byte(budgets))
		if err != nil {
			t.Fatal(err)
		}
		c.Policy = p
		m := podOf(tt.annotations, "a", "b")
		m.Namespace = tt.namespace
		r := c.Pod(t.Context(), m)
		if diff := cmp.Diff(tt.notes, r.Notes); diff != "" || len(r.Errors) > 0 {
			t.Errorf("%s: %q, -want +got:\n%s", tt.name, r.Errors, diff)
		}
		for _, j := range *asked {
			if j.Budget.Weight != tt.budget {
				t.Errorf("%s: the pod joins with a budget of %d, want %d", tt.name, j.Budget.Weight, tt.budget)
			}
		}
		for _, w := range r.Weights {
			if w.AtLeast != 0 || w.BesideOne == 0 {
				t.Errorf("%s: %+v", tt.name, w)
			}
		}
	}
}
