package node

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nri-blkio/nri-blkio/plugin/inventory"
	"github.com/nri-blkio/nri-blkio/plugin/node/layers"
	"github.com/nri-blkio/nri-blkio/policy"
)

// The policy that the goals are set for.
const (
	benchRules   = 50
	benchClasses = 20
)

// benchPolicy returns a policy of 50 rules and 20 classes. Each class limits writes to so many MiB/s and more.
// Only the last rule has a class for pods of the namespace prod.
func benchPolicy(b *testing.B, most int) *policy.Policy {
	b.Helper()
	var text strings.Builder
	text.WriteString("apiVersion: blkio.noderesource.dev/v1alpha1\nkind: NodePolicy\nclasses:\n")
	for i := range benchClasses {
		fmt.Fprintf(&text, "  class-%d: {limits: [\"* wbps=%dMi\"], weight: %d}\n", i, most+i, 50+i)
	}
	text.WriteString("rules:\n")
	for i := range benchRules {
		namespace := fmt.Sprintf("tenant-%d-*", i)
		if i == benchRules-1 {
			namespace = "prod"
		}
		fmt.Fprintf(&text, "- {name: rule-%d, match: {namespaces: [\"%s\"], podSelector: {matchLabels: {tier: batch}, matchExpressions: [{key: team, operator: NotIn, values: [a, b]}]}, qos: [Guaranteed, Burstable]}, class: class-%d, bounds: {max: [\"* wbps=500Mi\"]}}\n",
			i, namespace, i%benchClasses)
	}
	text.WriteString("bounds: {max: [\"* wbps=1Gi\"], weight: {max: 1000}}\n")
	p, err := policy.ParseFile([]byte(text.String()))
	if err != nil {
		b.Fatal(err)
	}
	return p
}

// plainPod is benchPod without annotations, with labels, in a namespace.
func plainPod(i int, namespace string) (sb *Sandbox, db, sidecar *Container) {
	sb, db, sidecar = benchPod(i, "/var/lib")
	sb.Annotations = map[string]string{"kubernetes.io/config.source": "api"}
	sb.Namespace = namespace
	sb.Labels = map[string]string{"tier": "batch", "app": "db", "pod-template-hash": "5d4f8c7b9", "io.kubernetes.pod.name": sb.Name, "io.kubernetes.pod.uid": sb.UID}
	return sb, db, sidecar
}

// BenchmarkBystander measures an event of a pod without annotations and without a class, as most pods are. The
// policy of the node has no rules, or many. Pods come and go.
func BenchmarkBystander(b *testing.B) {
	for name, pol := range map[string]*policy.Policy{"rules=0": policy.Default(), fmt.Sprint("rules=", benchRules): benchPolicy(b, 20)} {
		b.Run(name, func(b *testing.B) {
			var cgroups []string
			for i := range benchPods {
				cgroups = append(cgroups, podSlice(i))
			}
			h, _ := tree(b, cgroups...)
			n := newNode(b, h)
			n.Reload(pol)
			s := &session{n, handlerDeadline}
			var creates, starts []time.Duration
			for i := 0; b.Loop(); i++ {
				sb, db, _ := plainPod(i%benchPods, "dev")
				began := time.Now()
				if adjust, err := s.CreateContainer(b.Context(), sb, db); err != nil || adjust != nil {
					b.Fatal(adjust, err)
				}
				created := time.Now()
				if err := s.StartContainer(b.Context(), sb, db); err != nil {
					b.Fatal(err)
				}
				creates, starts = append(creates, created.Sub(began)), append(starts, time.Since(created))
				s.n.RemovedPod(sb.ID)
			}
			report(b, "create", creates)
			report(b, "start", starts)
		})
	}
}

// BenchmarkBystanders measures a pass over a node with 250 bystanders.
func BenchmarkBystanders(b *testing.B) {
	var cgroups []string
	for i := range benchPods {
		cgroups = append(cgroups, podSlice(i))
	}
	h, _ := tree(b, cgroups...)
	n := newNode(b, h)
	s := &session{n, handlerDeadline}
	for i := range benchPods {
		sb, db, _ := plainPod(i, "dev")
		if _, err := s.CreateContainer(b.Context(), sb, db); err != nil {
			b.Fatal(err)
		}
	}
	n.pass(b.Context())
	b.ReportAllocs()
	for b.Loop() {
		n.pass(b.Context())
	}
}

// BenchmarkCreateWithPolicy measures the event on a node with 250 pods. The pod has annotations, under the
// default policy and under one of 50 rules and 20 classes, or it has its limits from a class. The cases take
// turns, so that other work of the machine slows all of them.
func BenchmarkCreateWithPolicy(b *testing.B) {
	type variant struct {
		name      string
		n         *Node
		annotated bool
		took      []time.Duration
	}
	with, none := benchPolicy(b, 20), policy.Default()
	variants := []*variant{{name: "none", annotated: true}, {name: "rules", annotated: true}, {name: "class"}}
	pod := func(v *variant, i int) (*Sandbox, *Container) {
		sb, db, _ := plainPod(i, "prod")
		if v.annotated {
			annotated, _, _ := benchPod(i, "/var/lib")
			sb.Annotations = annotated.Annotations
		}
		return sb, db
	}
	for _, v := range variants {
		v.n = newNode(b, treeOfPods(b))
		v.n.policy.Store(with)
		if v.name == "none" {
			v.n.policy.Store(none)
		}
		s := &session{v.n, handlerDeadline}
		for i := range benchPods {
			sb, db := pod(v, i)
			if adjust, err := s.CreateContainer(b.Context(), sb, db); err != nil || len(adjust) == 0 {
				b.Fatal(v.name, adjust, err)
			}
		}
	}
	for i := 0; b.Loop(); i++ {
		for k := range variants {
			v := variants[(i+k)%len(variants)]
			s := &session{v.n, handlerDeadline}
			b.StopTimer()
			sb, db := pod(v, i%benchPods)
			v.n.RemovedPod(sb.ID)
			b.StartTimer()
			v.took = append(v.took, timed(func() {
				if _, err := s.CreateContainer(b.Context(), sb, db); err != nil {
					b.Error(err)
				}
			}))
		}
	}
	for _, v := range variants {
		report(b, v.name, v.took)
	}
}

// BenchmarkReload is the time from a new policy that changes the limits of all of 250 pods to the last write. The
// cgroups are plain files.
func BenchmarkReload(b *testing.B) {
	n, dir, policies := reloadedNode(b)
	var reloads []time.Duration
	for i := 0; b.Loop(); i++ {
		began := time.Now()
		n.Reload(policies[i%2])
		n.settle(b.Context())
		reloads = append(reloads, time.Since(began))
		b.StopTimer()
		want := fmt.Sprintf("wbps=%d", (20+20*(i%2)+(benchRules-1)%benchClasses)<<20)
		for k := range benchPods {
			if got := read(b, filepath.Join(dir, benchScope(k, "db"), "io.max")); !strings.Contains(got, want) {
				b.Fatalf("pod %d has %q, want %s", k, got, want)
			}
		}
		b.StartTimer()
	}
	report(b, "reload", reloads)
}

// BenchmarkBesideReload is the handler for ordinary pods: alone, and while BenchmarkReload has one new policy after another. Both
// are measured in turns.
func BenchmarkBesideReload(b *testing.B) {
	n, _, policies := reloadedNode(b)
	reloads := 0
	n.benchBeside(b, &session{n, time.Minute}, func() {
		n.Reload(policies[reloads%2])
		n.settle(b.Context())
		reloads++
	})
}

// reloadedNode returns a node with 250 pods, whose limits are those of the second one of two policies.
func reloadedNode(b *testing.B) (n *Node, dir string, policies []*policy.Policy) {
	b.Helper()
	var cgroups []string
	for i := range benchPods {
		cgroups = append(cgroups, podSlice(i), benchScope(i, "db"), benchScope(i, "sidecar"))
	}
	h, dir := tree(b, cgroups...)
	n = newNode(b, h)
	n.storage = onlyOn(dataDisk)
	n.layers = layers.New(inventory.Layers{Default: inventory.Layer{Dir: "/var/lib/containerd"}})
	policies = []*policy.Policy{benchPolicy(b, 20), benchPolicy(b, 40)}
	n.policy.Store(policies[1])
	for i := range benchPods {
		sb, db, sidecar := plainPod(i, "prod")
		for _, c := range []*Container{db, sidecar} {
			if _, err := n.create(b.Context(), sb, c, false); err != nil {
				b.Fatal(err)
			}
			if err := n.start(b.Context(), sb, c, true); err != nil {
				b.Fatal(err)
			}
		}
	}
	n.pass(b.Context())
	return n, dir, policies
}
