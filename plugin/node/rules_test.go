package node

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy"
)

// rules returns a policy with classes and these rules.
func rules(t testing.TB, text string) *policy.Policy {
	t.Helper()
	p, err := policy.ParseFile([]byte(`apiVersion: blkio.noderesource.dev/v1alpha1
kind: NodePolicy
classes:
  bronze: {limits: ["* wbps=20Mi"], weight: 50}
  silver: {limits: ["* wbps=40Mi"]}
  data: {limits: ["/data wbps=5Mi"]}
` + text))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

const inProd = "rules: [{name: prod, match: {namespaces: [prod], podSelector: {matchLabels: {tier: batch}}}, class: bronze}]\n"

// batch is a pod without annotations.
func batch() *Sandbox {
	sb := sandbox(nil)
	sb.Labels = map[string]string{"tier": "batch"}
	return sb
}

// TestClassOfRule verifies that a pod without annotations that a rule gives a class has its limits from its
// first instruction on, with a backstop. It is known again after a restart, and a reload changes it.
func TestClassOfRule(t *testing.T) {
	h, dir := tree(t, podCgroup, cgroupOf("a"))
	n := newNode(t, h)
	n.policy.Store(rules(t, inProd))
	other := batch()
	other.ID, other.Namespace = "sb2", "dev"
	if spec, err := n.create(t.Context(), other, ctr("other"), false); err != nil || spec != nil || len(n.peek().pods) != 0 {
		t.Fatalf("a pod that no rule matches: %v, %v, known %v", spec, err, n.peek().pods)
	}
	spec, err := n.create(t.Context(), batch(), ctr("a"), false)
	if err != nil || spec.DevLimits()[rootDisk.Dev][blkio.Wbps] != 20<<20 || spec.IOWeight().Default != 50 {
		t.Fatalf("%v, %v", spec, err)
	}
	start(t, n, batch(), "a")
	want := func(when string, rate blkio.Amount, source string) {
		t.Helper()
		for _, cgroup := range []string{cgroupOf("a"), podCgroup} {
			if got := wbps(t, n, cgroup); got != rate {
				t.Errorf("%s: %s has %v, want %v", when, cgroup, got, rate)
			}
		}
		if source == "" {
			return
		}
		if s := recordOf(t, n, cgroupOf("a")).Settings[0].Source; s.Text() != source {
			t.Errorf("%s: from %q, want %q", when, s.Text(), source)
		}
	}
	const bronze = "rule prod, class bronze"
	want("started", 20<<20, bronze)

	n.Reload(rules(t, strings.Replace(inProd, "bronze", "silver", 1)))
	n.pass(t.Context())
	want("another class", 40<<20, "rule prod, class silver")
	n.Reload(rules(t, strings.Replace(inProd, "bronze", "bronze, mode: observe", 1)))
	n.pass(t.Context())
	want("observed", blkio.Max, "")
	n.Reload(rules(t, inProd))
	n.pass(t.Context())
	want("enforced again", 20<<20, bronze)
	write(t, filepath.Join(dir, cgroupOf("a"), "io.max"), "254:0 rbps=max wbps=20971520 riops=max wiops=max\n")

	n = newNode(t, h)
	n.policy.Store(rules(t, inProd))
	n.Synchronize([]*Sandbox{batch(), other}, []*Container{listed("a", isRunning)})
	n.pass(t.Context())
	want("restarted", 20<<20, bronze)
	if pods, _, _ := n.Counts(); pods != 1 {
		t.Errorf("%d pods are known", pods)
	}

	// The policy changed while the plugin was away. The records show the limits that it had written.
	n = newNode(t, h)
	n.Synchronize([]*Sandbox{batch(), other}, []*Container{listed("a", isRunning)})
	n.pass(t.Context())
	want("without the rule", blkio.Max, "")
	n.Synchronize([]*Sandbox{batch()}, []*Container{listed("a", isRunning)})
	if pods, _, _ := n.Counts(); pods != 1 {
		t.Errorf("after another list %d pods are known", pods)
	}
}

// TestChosenClassGone verifies that a container keeps the limits of a class that its annotation chose when the
// policy no longer has that class, after a restart as well.
func TestChosenClassGone(t *testing.T) {
	h, dir := tree(t, podCgroup, cgroupOf("a"))
	n := newNode(t, h)
	n.policy.Store(rules(t, ""))
	sb := sandbox(map[string]string{"class.blkio.noderesource.dev/containers": "bronze"})
	if _, err := n.create(t.Context(), sb, ctr("a"), false); err != nil {
		t.Fatal(err)
	}
	start(t, n, sb, "a")
	want := func(when string) {
		t.Helper()
		if got := wbps(t, n, cgroupOf("a")); got != 20<<20 {
			t.Errorf("%s: wbps=%v", when, got)
		}
		if s := recordOf(t, n, cgroupOf("a")).Settings; len(s) == 0 || s[0].Source.Text() != "class bronze" {
			t.Errorf("%s: settings %+v", when, s)
		}
	}
	want("started")
	n.Reload(policy.Default())
	n.pass(t.Context())
	want("without the class")
	write(t, filepath.Join(dir, cgroupOf("a"), "io.max"), "254:0 rbps=max wbps=20971520 riops=max wiops=max\n")

	n = newNode(t, h)
	n.Synchronize([]*Sandbox{sb}, []*Container{listed("a", isRunning)})
	n.pass(t.Context())
	want("restarted")
}

// TestRejectReachesRunning verifies that a rule that rejects annotations limits running containers to its
// class, and keeps lower values, for the pod as a whole too.
func TestRejectReachesRunning(t *testing.T) {
	h, _ := tree(t, podCgroup, cgroupOf("a"))
	n := newNode(t, h)
	sb := sandbox(map[string]string{limitsKey + "containers": "rootfs wbps=10Gi", limitsKey + "pod-total": "rootfs wbps=30Mi"})
	if _, err := n.create(t.Context(), sb, ctr("a"), false); err != nil {
		t.Fatal(err)
	}
	start(t, n, sb, "a")
	for _, tt := range []struct {
		policy       string
		own, podwide blkio.Amount
	}{
		{"rules: [{name: r, class: silver, annotations: reject}]", 40 << 20, 30 << 20},
		{"rules: [{name: r, class: bronze, annotations: reject}]", 20 << 20, 20 << 20},
	} {
		n.Reload(rules(t, tt.policy))
		n.pass(t.Context())
		if own, podwide := wbps(t, n, cgroupOf("a")), wbps(t, n, podCgroup); own != tt.own || podwide != tt.podwide {
			t.Errorf("%s: wbps=%v, of the pod %v", tt.policy, own, podwide)
		}
		if r := recordOf(t, n, cgroupOf("a")); !strings.Contains(r.Error, "does not allow annotations") {
			t.Errorf("%s: error %q", tt.policy, r.Error)
		}
	}
}

// TestFurtherTargets verifies that a class of a new policy can select disks that nothing has selected before,
// of pods with annotations as well.
func TestFurtherTargets(t *testing.T) {
	h, _ := tree(t, podCgroup, cgroupOf("a"))
	n := newNode(t, h)
	sb := sandbox(map[string]string{limitsKey + "containers": "rootfs wbps=1Mi"})
	if _, err := n.create(t.Context(), sb, ctr("a", bind("/mnt/data/x", "/data", "rbind")), false); err != nil {
		t.Fatal(err)
	}
	start(t, n, sb, "a")
	n.Reload(rules(t, "rules: [{name: all, class: data}]"))
	n.pass(t.Context())
	got := recordOf(t, n, cgroupOf("a")).Settings.DevLimits()
	if got[dataDisk.Dev][blkio.Wbps] != 5<<20 || got[rootDisk.Dev][blkio.Wbps] != 1<<20 {
		t.Errorf("got %v", got)
	}
}

// TestModeOfRule verifies that the mode of its rule decides whether a pod is limited, and rejected.
func TestModeOfRule(t *testing.T) {
	const staged = "mode: observe\nonError: {internal: reject}\nrules: [{name: prod, match: {namespaces: [prod]}, mode: enforce}]"
	for namespace, enforced := range map[string]bool{"prod": true, "dev": false} {
		h, _ := tree(t, podCgroup, cgroupOf("a"))
		n := newNode(t, h)
		n.policy.Store(rules(t, staged))
		good := sandbox(map[string]string{limitsKey + "containers": "rootfs wbps=1Mi", weightKey + "containers": "5", limitsKey + "container.bad": "x"})
		good.Namespace = namespace
		spec, err := n.create(t.Context(), good, ctr("a"), false)
		if err != nil || (len(spec) > 0) != enforced {
			t.Errorf("%s: %v, %v", namespace, spec, err)
		}
		start(t, n, good, "a")
		if r := recordOf(t, n, cgroupOf("a")); r.Observed == enforced {
			t.Errorf("%s: record %+v", namespace, r)
		}
		n.listing.done.Store(true)
		if demand := n.Weighted(); (len(demand.Weighted) > 0) != enforced || !demand.Complete {
			t.Errorf("%s: weights %+v", namespace, demand)
		}
		if _, err := n.create(t.Context(), good, ctr("bad"), false); (err != nil) != enforced {
			t.Errorf("%s: a mistake: %v", namespace, err)
		}
		if err := n.Refusal(good); (err != nil) != enforced {
			t.Errorf("%s: an internal failure: %v", namespace, err)
		}
		if c := n.census(); (c.states[stateLimited] > 0) != enforced {
			t.Errorf("%s: states %v", namespace, c.states)
		}
	}
}

// TestRuleOncePerPolicy verifies that the rule of a pod is found once for each policy, not for each event.
func TestRuleOncePerPolicy(t *testing.T) {
	first, second := rules(t, inProd), rules(t, inProd)
	pod, _ := newPod(batch(), first)
	if one := pod.request.now.Load().under(first); one != pod.request.now.Load().under(first) || one.Rule() != "prod" || one == pod.request.now.Load().under(second) {
		t.Errorf("%+v", one)
	}
}

func TestQOSOf(t *testing.T) {
	for cgroup, want := range map[string]policy.QOS{
		"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1_2.slice": policy.Burstable,
		"/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod1.slice": policy.BestEffort,
		"/kubepods.slice/kubepods-pod1.slice":                                      policy.Guaranteed,
		"kubepods-burstable-pod1.slice":                                            policy.Burstable,
		"/my.slice/my-kubepods.slice/my-kubepods-besteffort-pod1.slice":            policy.BestEffort,
		"/kubepods/burstable/pod1-2":                                               policy.Burstable,
		"/kubepods/besteffort/pod1":                                                policy.BestEffort,
		"/my/kubepods/pod1":                                                        policy.Guaranteed,
		"/system.slice":                                                            "",
		"/kubepods/burstable":                                                      "",
		"/other/pod1":                                                              "",
		"/kubepods.slice/kubepods-besteffort.slice":                                "",
		"":                          "",
		"kubepods-other-pod1.slice": "",
		"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod_pod-podx.slice": "",
	} {
		if got := qosOf(cgroup); got != want {
			t.Errorf("%q is %q, want %q", cgroup, got, want)
		}
	}
}

// TestLoweredReturns verifies that a container that a class limited to less than its annotation gets the
// annotation's value back when the class is removed. That holds after a restart as well, although the policy
// rejects annotations.
func TestLoweredReturns(t *testing.T) {
	const rejected = "rules: [{name: r, annotations: reject}]"
	for name, between := range map[string]string{
		"lower": "rules: [{name: r, class: bronze, annotations: reject}]", "ignored": "rules: [{name: r, annotations: ignore}]",
	} {
		for _, restarts := range []bool{false, true} {
			h, dir := tree(t, podCgroup, cgroupOf("a"))
			n := newNode(t, h)
			sb := sandbox(map[string]string{limitsKey + "containers": "rootfs wbps=100Mi", limitsKey + "pod-total": "rootfs wbps=90Mi"})
			if _, err := n.create(t.Context(), sb, ctr("a"), false); err != nil {
				t.Fatal(err)
			}
			start(t, n, sb, "a")
			n.Reload(rules(t, between))
			n.pass(t.Context())
			if got := wbps(t, n, cgroupOf("a")); got != 20<<20 && name == "lower" {
				t.Errorf("%s: %v", name, got)
			}
			pol := rules(t, rejected)
			if restarts {
				now := fmt.Sprintf("254:0 rbps=max wbps=%v riops=max wiops=max\n", wbps(t, n, cgroupOf("a")))
				write(t, filepath.Join(dir, cgroupOf("a"), "io.max"), now)
				n = newNode(t, h)
				broken := true
				n.storage = flaky{disks{twoDisks}, &broken}
				n.policy.Store(pol)
				n.Synchronize([]*Sandbox{sb}, []*Container{listed("a", isRunning)})
				n.pass(t.Context()) // which cannot decide
				broken = false
			}
			n.Reload(pol)
			n.pass(t.Context())
			if own, pod := wbps(t, n, cgroupOf("a")), wbps(t, n, podCgroup); own != 100<<20 || pod != 90<<20 {
				t.Errorf("%s, restarts %v: the container has %v, the pod %v", name, restarts, own, pod)
			}
			if r := recordOf(t, n, cgroupOf("a")); len(r.Lowered) > 0 || !strings.Contains(r.Error, "does not allow annotations") {
				t.Errorf("%s, restarts %v: record %+v", name, restarts, r)
			}
		}
	}
}

// TestUndecidedUnderObserve verifies that a value of a former class that is in a container's OCI spec stays
// known while the limits are not decided under mode: observe. An update of the container does not bring it back
// for good.
func TestUndecidedUnderObserve(t *testing.T) {
	h, dir := tree(t, podCgroup, cgroupOf("a"))
	n := newNode(t, h)
	n.policy.Store(rules(t, inProd))
	if _, err := n.create(t.Context(), batch(), ctr("a"), false); err != nil {
		t.Fatal(err)
	}
	start(t, n, batch(), "a")
	const spec = "254:0 rbps=max wbps=20971520 riops=max wiops=max\n"
	file := filepath.Join(dir, cgroupOf("a"), "io.max")
	write(t, file, spec)

	n = newNode(t, h)
	broken := true
	n.storage = flaky{disks{twoDisks}, &broken}
	n.policy.Store(rules(t, "mode: observe\n"))
	a := withSpec(listed("a", isRunning), map[string]string{"io.max": "254:0 wbps=20971520"})
	n.Synchronize([]*Sandbox{batch()}, []*Container{a})
	for range 2 {
		n.pass(t.Context())
	}
	broken = false
	n.pass(t.Context())
	write(t, file, spec) // an update
	n.Updated("sb1")
	n.pass(t.Context())
	if got := wbps(t, n, cgroupOf("a")); got != blkio.Max {
		t.Errorf("limit %v", got)
	}
}

// TestObservedThenGone verifies that a value that a class put into a container's OCI spec does not come back
// with an update. The class was first only observed, and was then removed with a restart.
func TestObservedThenGone(t *testing.T) {
	h, dir := tree(t, podCgroup, cgroupOf("a"))
	write(t, filepath.Join(dir, cgroupOf("a"), "io.stat"), "")
	n := newNode(t, h)
	n.policy.Store(rules(t, inProd))
	if _, err := n.create(t.Context(), batch(), ctr("a"), false); err != nil {
		t.Fatal(err)
	}
	start(t, n, batch(), "a")
	update := func() {
		write(t, filepath.Join(dir, cgroupOf("a"), "io.max"), "254:0 rbps=max wbps=20971520 riops=max wiops=max\n")
		n.Updated("sb1")
		n.pass(t.Context())
	}
	for _, text := range []string{"mode: observe\n" + inProd, ""} {
		for restarts := range 2 {
			if restarts > 0 {
				n = newNode(t, h)
				n.policy.Store(rules(t, text))
				a := withSpec(listed("a", isRunning), map[string]string{"io.max": "254:0 wbps=20971520"})
				n.Synchronize([]*Sandbox{batch()}, []*Container{a})
				n.pass(t.Context())
			} else if text != "" {
				n.Reload(rules(t, text))
			}
			for range 2 {
				if update(); wbps(t, n, cgroupOf("a")) != blkio.Max {
					t.Errorf("%q, restarts %d: limit %v, record %+v", text, restarts, wbps(t, n, cgroupOf("a")), recordOf(t, n, cgroupOf("a")))
				}
			}
		}
	}
	n = newNode(t, h)
	n.policy.Store(rules(t, inProd))
	a := withSpec(listed("a", isRunning), map[string]string{"io.max": "254:0 wbps=20971520"})
	n.Synchronize([]*Sandbox{batch()}, []*Container{a})
	n.pass(t.Context())
	if wbps(t, n, cgroupOf("a")) != 20<<20 {
		t.Errorf("enforced again: %v, record %+v", wbps(t, n, cgroupOf("a")), recordOf(t, n, cgroupOf("a")))
	}
}
