package policy

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

func budgeted(t *testing.T) *Policy {
	t.Helper()
	text, err := os.ReadFile("testdata/budgeted.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return parsed(t, string(text))
}

func TestBudgetFor(t *testing.T) {
	p := budgeted(t)
	tenants := blkio.Limits{blkio.Wbps: 200 << 20, blkio.Riops: 1000}
	for namespace, want := range map[string]blkio.Limits{
		"tenant-a": tenants, "other": tenants, "tenant-late": tenants, "late": {blkio.Riops: 50}, "tenant-free": {}, "web": {}, "": {},
	} {
		facts := &PodFacts{Namespace: namespace}
		b := p.BudgetFor(namespace)
		if (b == nil) != want.IsZero() || b != nil && b.Limits != want {
			t.Errorf("%s: %+v, want %q", namespace, b, want)
		}
		pod := p.ForPod(facts, annotation.Parse(nil))
		if concerned := !want.IsZero(); p.Concerns(facts) != concerned || pod.IsEmpty() == concerned || pod.Budget() != b || pod.Targets().HasStar() != concerned {
			t.Errorf("%s: concerned %t, empty %t, targets %+v", namespace, p.Concerns(facts), pod.IsEmpty(), pod.Targets())
		}
		if pod.StarOf("db") {
			t.Errorf("%s: undeclared disks are searched for without a limit for *", namespace)
		}
	}
	if (*Pod)(nil).Budget() != nil || (*NamespaceBudget)(nil).Has(blkio.Wbps) || p.BudgetFor("late").Has(blkio.Wbps) || p.BudgetFor("late").Has(blkio.Weight) {
		t.Error("a budget that is none")
	}
	if !p.ConcernsUnannotated() || !parsed(t, "budgets: [{namespaces: [a], limits: ['* wbps=1Gi']}]").ConcernsUnannotated() {
		t.Error("a policy with budgets concerns pods without annotations")
	}
}

// TestWeightBudget verifies that a budget may have a weight, limits or both, that the weight rejects nothing, and that pods in mode
// observe have none.
func TestWeightBudget(t *testing.T) {
	const budgets = `
budgets:
- {namespaces: [free], limits: ["* wbps=max"]}
- {namespaces: [both], limits: ["* wbps=200Mi"], weight: 300}
- {namespaces: ["*"], weight: 100}
`
	for _, tt := range []struct {
		text, namespace, handler string
		want                     uint32
		limits                   bool
	}{
		{budgets, "free", "", 0, false},
		{budgets, "both", "", 300, true},
		{budgets, "tenant-a", "", 100, false},
		{budgets, "tenant-a", "kata", 100, false},
		{budgets + "mode: observe", "tenant-a", "", 0, false},
		{budgets + "rules: [{name: staged, match: {namespaces: [tenant-a]}, mode: observe}]", "tenant-a", "", 0, false},
		{budgets + "mode: observe\nrules: [{name: first, match: {namespaces: [tenant-a]}, mode: enforce}]", "tenant-a", "", 100, false},
		{"budgets: [{namespaces: [both], limits: ['* wbps=1Gi']}]", "both", "", 0, true},
	} {
		p, facts := parsed(t, tt.text), &PodFacts{Namespace: tt.namespace, Handler: tt.handler}
		pod := p.ForPod(facts, annotation.Parse(nil))
		if got := pod.WeightBudget().Weight; got != tt.want || (pod.Budget() != nil) != tt.limits || p.Concerns(facts) != tt.limits {
			t.Errorf("%s in %s: %d, limits %t, concerned %t", tt.namespace, tt.text, got, pod.Budget() != nil, p.Concerns(facts))
		}
		if d, err := pod.Container(db()); err != nil || (len(d.Uses) > 0) != tt.limits {
			t.Errorf("%s: %v, uses %v", tt.namespace, err, d.Uses)
		}
	}
	p := parsed(t, "budgets: [{namespaces: ['*'], weight: 100}]")
	if p.ConcernsUnannotated() || !p.BoundsWeights() || len(p.Warnings()) > 0 || budgeted(t).BoundsWeights() {
		t.Errorf("a budget of weights: concerns pods without annotations %t, warnings %q", p.ConcernsUnannotated(), p.Warnings())
	}
}

func TestBudgetFileErrors(t *testing.T) {
	const head = fileHead + "budgets:\n- namespaces: [tenant-a]\n  limits: ['* wbps=1Gi']\n- "
	checkFileErrors(t, []struct{ text, want string }{
		{fileHead + "budgets: {}", "line 3: budgets: Invalid value: expected a list, found object"},
		{head + "{}", `line 6: budgets[1].namespaces: Required value: write the patterns of namespaces, such as ["tenant-*"]`},
		{head + "{}", `line 6: budgets[1]: Required value: a budget has limits, such as ["* wbps=200Mi"], a weight, or a guarantee`},
		{head + "{namespaces: [], limits: ['* wbps=1Gi']}", "line 6: budgets[1].namespaces: Required value"},
		{head + "{namespaces: a, limits: ['* wbps=1Gi']}", "line 6: budgets[1].namespaces: Invalid value: expected a list, found string"},
		{head + "namespaces: [a]\n  limits: ['* wbps=1Gi']\n  limit: 1", `line 8: budgets[1].limit: Forbidden: unknown field (did you mean "budgets[1].limits"?)`},
		{head + "namespaces:\n  - b\n  - '[a'\n  limits: ['* wbps=1Gi']", `line 8: budgets[1].namespaces[1]: Invalid value: "[a"`},
		{head + "namespaces: ['']\n  limits: ['* wbps=1Gi']", `line 6: budgets[1].namespaces[0]: Required value: write * for any namespace`},
		{head + "namespaces: [b, Tenant-*]\n  limits: ['* wbps=1Gi']", `line 6: budgets[1].namespaces[1]: Invalid value: "Tenant-*": no namespace matches: names have a-z, 0-9 and -`},
		{head + "namespaces: ['tenant-a, tenant-b']\n  limits: ['* wbps=1Gi']", `line 6: budgets[1].namespaces[0]: Invalid value: "tenant-a, tenant-b": no namespace matches (write one element of the list for each pattern)`},
		{head + "namespaces: [a]\n  limits:\n  - '/data wbps=1Gi'", `line 8: budgets[1].limits[0]: Invalid value: "/data wbps=1Gi": invalid target: a budget holds for each disk (write *)`},
		{head + "namespaces: [a]\n  limits: ['* wpbs=1Gi']", `line 7: budgets[1].limits[0]: Invalid value: "* wpbs=1Gi": unknown key "wpbs" (did you mean "wbps"?)`},
		{head + "namespaces: [a]\n  limits: ['* wbps=1Gi', '* riops=20']", `line 7: budgets[1].limits[1]: Invalid value: "* riops=20": duplicate target`},
		{head + "namespaces: [a]\n  limits: ['* riops=7']", `line 7: budgets[1].limits[0]: Invalid value: "* riops=7": riops=7 is under this node's floor (write at least 8)`},
		{head + "namespaces: [a]\n  weight: 0", "line 7: budgets[1].weight: Invalid value: 0: must be between 1 and 10000, inclusive"},
		{head + "namespaces: [a]\n  limits: ['* wbps=1Gi']\n  weight: 10001", "line 8: budgets[1].weight: Invalid value: 10001: must be between 1 and 10000, inclusive"},
		{head + "namespaces: [a]\n  weight: -5\n  limits: ['* riops=7']", "line 7: budgets[1].weight: Invalid value: -5: must be between 1 and 10000, inclusive"},
		{head + "namespaces: [a]\n  weight: 5\n  limits: ['* riops=7']", "line 8: budgets[1].limits[0]: Invalid value: \"* riops=7\": riops=7 is under this node's floor (write at least 8)"},
		{head + "namespaces: [a]\n  weight: high", "line 7: budgets[1].weight: Invalid value: expected a whole number, found string"},
	})
}

// TestUses verifies that a container uses, for its budget, the disks that a limit for * applies to.
func TestUses(t *testing.T) {
	p := budgeted(t)
	full := db()
	full.Mounts = append(full.Mounts, readOnly(mount("/ro", on(sdc))), mount("/net", blkio.Backing{FSType: "nfs", Reason: "nfs is a network filesystem"}))
	full.Mounts[4] = readOnly(full.Mounts[4]) // the only one on sdc that can be written to
	full.Undeclared = []blkio.Disk{{Dev: blkio.Dev{Major: 8, Minor: 48}, Name: "sdd"}}
	for _, tt := range []struct {
		name, namespace, handler string
		c                        Container
		want                     string
	}{
		{"all", "tenant-a", "", full, "sda wbps, sda riops, sdb wbps, sdb riops, sdc riops"},
		{"another key", "late", "", full, "sda riops, sdb riops, sdc riops"},
		{"no budget", "tenant-free", "", full, ""},
		{"another kernel", "tenant-a", "kata", full, ""},
		{"in memory", "tenant-a", "", Container{Name: "m", Rootfs: tmpfs()}, ""},
	} {
		d, err := p.ForPod(&PodFacts{Namespace: tt.namespace, Handler: tt.handler}, annotation.Parse(nil)).Container(tt.c)
		var got []string
		for _, u := range d.Uses {
			got = append(got, u.Disk.Name+" "+u.Key.String())
		}
		if err != nil || strings.Join(got, ", ") != tt.want || len(d.Settings)+len(d.Skipped)+len(d.Warnings) > 0 {
			t.Errorf("%s: %q, %v, %+v", tt.name, got, err, d)
		}
	}
	unknown := Container{Name: "x", Rootfs: blkio.Backing{Err: errNow, Reason: "this node failed to look"}}
	pod := p.ForPod(&PodFacts{Namespace: "tenant-a"}, annotation.Parse(nil))
	d, err := pod.Container(unknown)
	if e := asError(t, err); e == nil || e.Kind() != annotation.Internal || e.From.Field != "budgets[1].limits" || len(d.Errors) != 1 {
		t.Errorf("a disk that is unknown: %v", err)
	}
	if d, err = p.ForPod(&PodFacts{Namespace: "tenant-a"}, annotation.Parse(map[string]string{keyEach: "* wbps=1Mi"})).Container(unknown); err == nil || len(d.Errors) != 1 {
		t.Errorf("with a limit for * as well: %v", d.Errors)
	}
}

// TestCharges verifies that a limit counts with its value, and that a disk in use without a limit counts as
// unlimited.
func TestCharges(t *testing.T) {
	p := budgeted(t)
	c := db()
	c.Mounts = append(c.Mounts, readOnly(mount("/ro", on(blkio.Disk{Dev: blkio.Dev{Major: 9}, Name: "md0"}))))
	for annotations, want := range map[string]string{
		"":                                  "sda riops=max sda wbps=max sdb riops=max sdb wbps=max sdc riops=max sdc wbps=max md0 riops=max",
		"* wbps=2Mi riops=max rbps=1Mi":     "sda riops=max sda wbps=2Mi sdb riops=max sdb wbps=2Mi sdc riops=max sdc wbps=2Mi md0 riops=max",
		"* riops=50; /data wbps=1Mi":        "sda riops=50 sda wbps=max sdb riops=50 sdb wbps=1Mi sdc riops=50 sdc wbps=max md0 riops=50",
		"* riops=50 wbps=1Mi; /ro wbps=3Mi": "sda riops=50 sda wbps=1Mi sdb riops=50 sdb wbps=1Mi sdc riops=50 sdc wbps=1Mi md0 riops=50 md0 wbps=3Mi",
		"* riops=50 wbps=1Mi; /ro wbps=max": "sda riops=50 sda wbps=1Mi sdb riops=50 sdb wbps=1Mi sdc riops=50 sdc wbps=1Mi md0 riops=50",
	} {
		request := map[string]string{}
		if annotations != "" {
			request[keyEach] = annotations
		}
		pod := p.ForPod(&PodFacts{Namespace: "tenant-a"}, annotation.Parse(request))
		d, err := pod.Container(c)
		if err != nil {
			t.Fatal(err)
		}
		names := map[blkio.Dev]string{{Major: 9}: "md0"}
		var got []blkio.Value
		d.Charges(pod.Budget(), func(at blkio.Address, amount blkio.Amount) {
			got = append(got, blkio.Value{Address: at, Amount: amount})
		})
		for _, disk := range []blkio.Disk{sda, sdb, sdc} {
			names[disk.Dev] = disk.Name
		}
		slices.SortFunc(got, func(a, b blkio.Value) int {
			if c := a.Dev.Compare(b.Dev); c != 0 {
				return c
			}
			return strings.Compare(a.Key.String(), b.Key.String())
		})
		var text []string
		for _, x := range got {
			text = append(text, names[x.Dev]+" "+x.Key.String()+"="+annotation.FormatAmount(x.Key, x.Amount))
		}
		if diff := cmp.Diff(want, strings.Join(text, " ")); diff != "" {
			t.Errorf("%q: -want +got:\n%s", annotations, diff)
		}
	}
}
