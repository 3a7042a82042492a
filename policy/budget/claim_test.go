package budget

import (
	"regexp"
	"strings"
	"testing"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// claimed returns the error of a budget for a container with its root filesystem on sda.
func claimed(t testing.TB, p *policy.Policy, namespace string, annotations map[string]string, granted grantedBefore) *annotation.Error {
	t.Helper()
	pod := p.ForPod(&policy.PodFacts{Namespace: namespace}, annotation.Parse(annotations))
	c := policy.Container{Name: "db", Rootfs: on(sda), MemoryLimited: true}
	d, err := pod.Container(c)
	total, totalErr := pod.Total([]policy.Container{c})
	if err != nil || totalErr != nil {
		t.Skip(err, totalErr) // of a fuzz test; a table's annotations are right
	}
	claim := Claim{Pod: pod, Desired: &d, Total: total.Settings, Own: granted.own(), Others: granted.others}
	return claim.Check()
}

// grantedBefore is what is granted on sda before a container is created: of wbps only.
type grantedBefore struct {
	Others, Own blkio.Amount
	Bound       blkio.Amount // the limit of the pod as a whole; blkio.Unset for none
	Pods        int          // with the own one
	Undecided   bool
}

var wbpsOfSda = blkio.Address{Key: blkio.Wbps, Dev: sda.Dev}

// own returns the share of the pod.
func (g grantedBefore) own() *Share {
	s := &Share{}
	if s.Add(wbpsOfSda, g.Own, &policy.Desired{}); g.Bound != blkio.Unset {
		s.Bind(wbpsOfSda, g.Bound)
	}
	return s
}

// others returns what the other pods are granted.
func (g grantedBefore) others(at blkio.Address) Granted {
	if at != wbpsOfSda {
		return Granted{}
	}
	if g.Own != 0 {
		g.Pods--
	}
	return Granted{Amount: g.Others, Pods: g.Pods, Undecided: g.Undecided}
}

// ofKey returns what is granted of a key.
func (g grantedBefore) ofKey(k blkio.Key) grantedBefore {
	if k != blkio.Wbps {
		return grantedBefore{}
	}
	return g
}

// claimCase is a request, what is granted already, and the error that the request gets; "" for none.
type claimCase struct {
	name, namespace string
	annotations     map[string]string
	granted         grantedBefore
	want            string
}

const (
	mi            = 1 << 20
	exceedsBudget = " on disk sda exceeds the budget of namespace tenant-a: "
)

// eachContainer returns annotations with a limit on wbps for each container, and one on riops.
func eachContainer(value string) map[string]string {
	return map[string]string{keyEach: value + "; rootfs riops=50"}
}

// eachAndTotal returns annotations with limits for each container, and with a pod-total of 50 MiB/s.
func eachAndTotal(each string) map[string]string {
	return map[string]string{keyEach: each, keyTotal: "* wbps=50Mi riops=50"}
}

// checkClaims verifies the errors of claims under the policy budgeted.
func checkClaims(t *testing.T, cases []claimCase) {
	t.Helper()
	p := budgeted(t)
	for _, tt := range cases {
		got := ""
		if err := claimed(t, p, tt.namespace, tt.annotations, tt.granted); err != nil {
			checkLine(t, err.Error())
			got = strings.TrimPrefix(strings.TrimPrefix(err.Error(), "nri-blkio: "), "limits.blkio.noderesource.dev/")
			if err.Kind() != annotation.Invalid {
				t.Errorf("%s: kind %v", tt.name, err.Kind())
			}
		}
		if got != tt.want {
			t.Errorf("%s:\n got %s\nwant %s", tt.name, got, tt.want)
		}
	}
}

// TestClaim verifies the cause and the advice in the error when a budget has no room.
func TestClaim(t *testing.T) {
	checkClaims(t, []claimCase{
		{"room", "tenant-a", eachContainer("* wbps=50Mi"), grantedBefore{Others: 150 * mi, Pods: 2}, ""},
		{"no budget", "web", eachContainer("* wbps=500Mi"), grantedBefore{Others: blkio.Max}, ""},
		{"exempt", "tenant-free", nil, grantedBefore{Others: blkio.Max}, ""},
		{
			"too much", "tenant-a", eachContainer("* wbps=50Mi"),
			grantedBefore{Others: 180 * mi, Pods: 3},
			"containers: wbps=50Mi" + exceedsBudget + "180Mi of 200Mi are granted to 3 pods (wait for room, or write at most 20Mi)",
		},
		{
			"one pod, and no room for the floor", "tenant-a", eachContainer("* wbps=50Mi"),
			grantedBefore{Others: 200*mi - 10, Pods: 1},
			"containers: wbps=50Mi" + exceedsBudget + "209715190 of 200Mi are granted to 1 pod (wait for room)",
		},
		{
			"a budget that was lowered", "tenant-a", eachContainer("* wbps=1Mi"),
			grantedBefore{Others: 250 * mi, Pods: 2},
			"containers: wbps=1Mi" + exceedsBudget + "250Mi of 200Mi are granted to 2 pods (wait for room)",
		},
		{
			"more than the whole budget", "tenant-a", eachContainer("* wbps=201Mi"),
			grantedBefore{Others: 10 * mi, Pods: 1},
			"containers: wbps=201Mi" + exceedsBudget + "200Mi (write at most 200Mi)",
		},
		{
			"a pod without a limit", "tenant-a", eachContainer("* wbps=50Mi"),
			grantedBefore{Others: blkio.Max, Pods: 2},
			"containers: wbps=50Mi" + exceedsBudget + "a pod without a limit there counts as granted all of 200Mi (wait for room)",
		},
		{
			"a pod that is not decided", "tenant-a", eachContainer("* wbps=50Mi"),
			grantedBefore{Others: blkio.Max, Pods: 2, Undecided: true},
			"containers: wbps=50Mi" + exceedsBudget + "the limits of a pod that runs are not decided yet (wait for room)",
		},
	})
}

// TestClaimOfPod verifies the error of a container if other containers of its pod, or the pod-total, count for
// the budget.
func TestClaimOfPod(t *testing.T) {
	checkClaims(t, []claimCase{
		{
			"the pod's other containers", "tenant-a", eachContainer("* wbps=50Mi"),
			grantedBefore{Own: 180 * mi, Pods: 1},
			"containers: wbps=50Mi" + exceedsBudget + "180Mi of 200Mi are granted to other containers of the pod (write at most 20Mi)",
		},
		{
			"both", "tenant-a", eachContainer("* wbps=50Mi"),
			grantedBefore{Others: 100 * mi, Own: 80 * mi, Pods: 2},
			"containers: wbps=50Mi" + exceedsBudget + "180Mi of 200Mi are granted to 2 pods (wait for room, or write at most 20Mi)",
		},
		{"a pod that has all already", "tenant-a", eachContainer("* wbps=50Mi"), grantedBefore{Own: blkio.Max, Pods: 1}, ""},
		{"only the pod as a whole", "tenant-a", eachAndTotal("* riops=50"), grantedBefore{Others: 150 * mi, Pods: 1}, ""},
		{
			"the pod as a whole", "tenant-a", eachAndTotal("* riops=50"),
			grantedBefore{Others: 180 * mi, Own: blkio.Max, Bound: 50 * mi, Pods: 2},
			"",
		},
		{
			"the pod as a whole had less before", "tenant-a", eachAndTotal("* riops=50"),
			grantedBefore{Others: 180 * mi, Own: blkio.Max, Bound: 10 * mi, Pods: 2},
			"pod-total: wbps=50Mi" + exceedsBudget + "190Mi of 200Mi are granted to 2 pods (wait for room, or write at most 20Mi)",
		},
		{
			"the pod as a whole exceeds", "tenant-a", eachAndTotal("* wbps=40Mi riops=50"),
			grantedBefore{Others: 180 * mi, Own: 15 * mi, Pods: 2},
			"pod-total: wbps=50Mi" + exceedsBudget + "195Mi of 200Mi are granted to 2 pods (wait for room, or write at most 20Mi)",
		},
		{"within the pod as a whole", "tenant-a", eachAndTotal("* wbps=40Mi riops=50"), grantedBefore{Others: 180 * mi, Own: 60 * mi, Pods: 2}, ""},
	})
}

// TestClaimNeedsLimit verifies that a container without a limit for a key of the budget gets an error with an
// example of one.
func TestClaimNeedsLimit(t *testing.T) {
	checkClaims(t, []claimCase{
		{
			"no limit", "tenant-a", nil,
			grantedBefore{},
			`containers: wbps of * needs a limit: disk sda has none, and namespace tenant-a has a budget (write for example "* wbps=25Mi")`,
		},
		{
			"no limit for one key", "tenant-a",
			map[string]string{keyEach: "* wbps=1Mi"},
			grantedBefore{},
			`containers: riops of * needs a limit: disk sda has none, and namespace tenant-a has a budget (write for example "* riops=125")`,
		},
		{
			"max", "tenant-a",
			map[string]string{keyDB: "* wbps=max riops=50"},
			grantedBefore{Own: blkio.Max},
			`container.db: wbps of * needs a limit: disk sda has none, and namespace tenant-a has a budget (write for example "* wbps=25Mi")`,
		},
	})
}

// TestClaimOfRule verifies that the error names the class if the limit is that of a class, and advises no value
// that the rule forbids.
func TestClaimOfRule(t *testing.T) {
	checkClaims(t, []claimCase{
		{
			"a class", "tenant-classed", nil,
			grantedBefore{Others: 190 * mi, Pods: 2},
			`"rule classed, class tenant": wbps=20Mi on disk sda exceeds the budget of namespace tenant-classed: 190Mi of 200Mi are granted to 2 pods (wait for room, or write at most 10Mi in an annotation)`,
		},
		{
			"a class that cannot be changed", "tenant-closed", nil,
			grantedBefore{Others: 190 * mi, Pods: 2},
			`"rule closed, class tenant": wbps=20Mi on disk sda exceeds the budget of namespace tenant-closed: 190Mi of 200Mi are granted to 2 pods (wait for room)`,
		},
		{
			"less room than the bound", "tenant-bounded", eachContainer("* wbps=50Mi"),
			grantedBefore{Others: 180 * mi, Pods: 1},
			"containers: wbps=50Mi on disk sda exceeds the budget of namespace tenant-bounded: 180Mi of 200Mi are granted to 1 pod (wait for room)",
		},
	})
}

// TestClaimWithoutAnnotations verifies that the error names the rule if the rule allows no annotations.
func TestClaimWithoutAnnotations(t *testing.T) {
	p := parsed(t, "rules: [{name: r, annotations: reject}]\nbudgets: [{namespaces: ['*'], limits: ['* wbps=1Mi']}]")
	err := claimed(t, p, "a", nil, grantedBefore{})
	const want = `nri-blkio: "rule r": wbps of * needs a limit: disk sda has none, and namespace a has a budget (ask the operators of the cluster)`
	if err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

// TestIdentity verifies that errors of a budget are the same whatever is granted to others, and that those of other requests are not.
func TestIdentity(t *testing.T) {
	p := budgeted(t)
	of := func(namespace string, annotations map[string]string, granted grantedBefore) annotation.Identity {
		return claimed(t, p, namespace, annotations, granted).Identity
	}
	for name, same := range map[string][]grantedBefore{
		"others": {{Others: 180 * mi, Pods: 3}, {Others: 155 * mi, Pods: 1}, {Others: 200*mi - 10, Pods: 1}},
		"both":   {{Others: 100 * mi, Own: 80 * mi, Pods: 2}, {Others: 120 * mi, Own: 40 * mi, Pods: 3}},
	} {
		want := of("tenant-a", eachContainer("* wbps=50Mi"), same[0])
		for _, granted := range same {
			if got := of("tenant-a", eachContainer("* wbps=50Mi"), granted); got != want {
				t.Errorf("%s: %v, want %v", name, got, want)
			}
			if got := of("tenant-a", eachContainer("* wbps=60Mi"), granted); got == want {
				t.Errorf("%s: another request is %v as well", name, got)
			}
		}
	}
	if a, b := of("tenant-classed", nil, grantedBefore{Others: 190 * mi, Pods: 2}), of("tenant-classed", nil, grantedBefore{Others: 185 * mi, Pods: 1}); a != b || a.String() != b.String() {
		t.Errorf("of a class: %v, then %v", a, b)
	}
}

// exceededBy returns the key for which a pod with the container of claimed exceeds the budget of its namespace or has no limit,
// and "" if there is none. It adds up what the pods would be granted, without the code of a Claim.
func exceededBy(p *policy.Policy, namespace string, annotations map[string]string, granted grantedBefore) string {
	b := p.BudgetFor(namespace)
	pod := p.ForPod(&policy.PodFacts{Namespace: namespace}, annotation.Parse(annotations))
	c := policy.Container{Name: "db", Rootfs: on(sda), MemoryLimited: true}
	d, _ := pod.Container(c)
	total, _ := pod.Total([]policy.Container{c})
	for k := range blkio.NumLimits {
		at := blkio.Address{Key: k, Dev: sda.Dev}
		if !b.Has(k) {
			continue
		}
		now, limit, bound := granted.ofKey(k), blkio.Max, blkio.Max
		if s, found := d.Settings.Get(at); found {
			limit = s.Amount
		}
		before := now.Own
		if now.Bound != blkio.Unset {
			before, bound = min(before, now.Bound), now.Bound
		}
		if s, found := total.Settings.Get(at); found {
			bound = s.Amount
		}
		after := min(Plus(now.Own, limit), bound)
		if min(limit, bound) == blkio.Max || after > before && Plus(now.Others, after) > b.Limits[k] {
			return k.String()
		}
	}
	return ""
}

// FuzzClaim verifies that a container is rejected if and only if its pod would exceed the budget, and that the value
// in the advice of the error has room.
func FuzzClaim(f *testing.F) {
	for _, value := range []string{"* wbps=50Mi", "* wbps=max", "", "rootfs wbps=20Mi riops=50", "* wbps=300Mi riops=50"} {
		f.Add("tenant-a", value, "* wbps=60Mi", uint64(180<<20), uint64(10<<20), uint64(0))
		f.Add("tenant-bounded", value, "* riops=60", uint64(1<<63), uint64(1<<63), uint64(30<<20))
	}
	p, advised := budgeted(f), regexp.MustCompile(`write at most (\S+)\)$`)
	f.Fuzz(func(t *testing.T, namespace, value, total string, others, own, bound uint64) {
		annotations := map[string]string{keyEach: value, keyTotal: total}
		granted := grantedBefore{Others: blkio.Amount(others), Own: blkio.Amount(own), Bound: blkio.Amount(bound), Pods: 2}
		err := claimed(t, p, namespace, annotations, granted)
		if exceeded := exceededBy(p, namespace, annotations, granted); (exceeded != "") != (err != nil) {
			t.Errorf("the error is %v; exceeded: %q", err, exceeded)
		}
		if err == nil {
			return
		}
		checkLine(t, err.Error())
		if again := claimed(t, p, namespace, annotations, granted); again.Error() != err.Error() {
			t.Errorf("%v, then %v", err, again)
		}
		m := advised.FindStringSubmatch(err.Error())
		if m == nil || !strings.Contains(err.Error(), " exceeds the budget of ") {
			return
		}
		key := blkio.Wbps
		if strings.Contains(err.Error(), ": riops=") {
			key = blkio.Riops
		}
		rate, problem := annotation.ParseAmount(key, m[1])
		if problem != nil {
			t.Fatalf("%v: %v", err, problem)
		}
		if strings.Contains(err.Error(), "are granted to") && Plus(granted.Others, rate) > p.BudgetFor(namespace).Limits[key] {
			t.Errorf("no room for what is advised: %v", err)
		}
	})
}
