package policy

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// parsed returns the policy of a file, without its header.
func parsed(t testing.TB, text string) *Policy {
	t.Helper()
	p, err := ParseFile([]byte(fileHead + text))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

const keyClass = "class.blkio.noderesource.dev/"

// staged is a policy with a rule of each kind.
const staged = `
classes:
  gold: {limits: ["* rbps=500Mi wbps=200Mi"], weight: 800}
  silver: {limits: ["* wbps=50Mi", "/data wbps=60Mi riops=100"]}
  bronze: {limits: ["* wbps=20Mi wiops=500"], weight: 50}
  light: {weight: 10}
rules:
- name: system
  match: {namespaces: [kube-system, "openshift-*"]}
  class: none
  mode: observe
- name: guaranteed
  match: {qos: [Guaranteed]}
  class: gold
- name: batch
  match:
    namespaces: ["batch-*"]
    podSelector:
      matchLabels: {tier: batch}
      matchExpressions:
      - {key: size, operator: NotIn, values: [huge]}
      - {key: team, operator: Exists}
  class: bronze
  annotations: allow
  bounds: {max: ["* wbps=100Mi"], min: ["* wbps=1Mi wiops=50"], weight: {max: 60}}
- {name: ignored, match: {namespaces: [ignored]}, class: silver, annotations: ignore}
- {name: rejected, match: {namespaces: [rejected]}, class: silver, annotations: reject}
- {name: unbound, match: {namespaces: [unbound]}, bounds: {max: ["* wbps=max"], weight: {max: 10000}}}
bounds: {max: ["* wbps=300Mi riops=5k"]}
`

func batch() *PodFacts {
	return &PodFacts{Namespace: "batch-1", Labels: map[string]string{"tier": "batch", "team": "a", "io.kubernetes.pod.name": "x"}, QOS: Burstable}
}

// TestRuleFor covers the first rule that a pod matches in each respect.
func TestRuleFor(t *testing.T) {
	p := parsed(t, staged)
	with := func(change func(f *PodFacts)) *PodFacts {
		f := batch()
		change(f)
		return f
	}
	for _, tt := range []struct {
		name, rule string
		pod        *PodFacts
		concerned  bool
		mode       Mode
	}{
		{"all", "batch", batch(), true, ModeEnforce},
		{"another namespace", "", with(func(f *PodFacts) { f.Namespace = "batch" }), false, ModeEnforce},
		{"another label", "", with(func(f *PodFacts) { f.Labels["tier"] = "web" }), false, ModeEnforce},
		{"a label of NotIn", "", with(func(f *PodFacts) { f.Labels["size"] = "huge" }), false, ModeEnforce},
		{"another value of NotIn", "batch", with(func(f *PodFacts) { f.Labels["size"] = "small" }), true, ModeEnforce},
		{"without a label", "", with(func(f *PodFacts) { delete(f.Labels, "team") }), false, ModeEnforce},
		{"without labels", "", with(func(f *PodFacts) { f.Labels = nil }), false, ModeEnforce},
		{"an earlier rule", "guaranteed", with(func(f *PodFacts) { f.QOS = Guaranteed }), true, ModeEnforce},
		{"no QoS class known", "batch", with(func(f *PodFacts) { f.QOS = "" }), true, ModeEnforce},
		{"class none", "system", &PodFacts{Namespace: "kube-system", QOS: Guaranteed}, false, ModeObserve},
		{"a pattern", "system", &PodFacts{Namespace: "openshift-dns"}, false, ModeObserve},
		{"no facts", "", &PodFacts{}, false, ModeEnforce},
	} {
		pod := p.ForPod(tt.pod, annotation.Parse(nil))
		if pod.Rule() != tt.rule || p.Concerns(tt.pod) != tt.concerned || pod.Mode() != tt.mode || pod.Of() != p {
			t.Errorf("%s: rule %q, want %q; concerned %t, mode %s", tt.name, pod.Rule(), tt.rule, p.Concerns(tt.pod), pod.Mode())
		}
	}
	if p.ForPod(nil, nil).Rule() != "" || (*Pod)(nil).Of() != nil {
		t.Error("a pod without facts")
	}
}

// TestUnreached verifies that a rule after one that matches all pods is found.
func TestUnreached(t *testing.T) {
	for match, isForAll := range map[string]bool{
		"{}": true, "{namespaces: [a, '*']}": true, "{podSelector: {}}": true, "{podSelector: {matchLabels: {}}}": true,
		"{namespaces: ['a*']}": false, "{qos: [BestEffort]}": false, "{podSelector: {matchLabels: {a: b}}}": false,
	} {
		p := parsed(t, "rules: [{name: a, match: {namespaces: [a]}}, {name: b, match: "+match+"}, {name: c}, {name: d}]")
		want := "rule d of the policy and those after it are never reached: rule c matches all pods"
		if isForAll {
			want = "rule c of the policy and those after it are never reached: rule b matches all pods"
		}
		if got := p.Warnings(); !slices.Equal(got, []string{want}) {
			t.Errorf("%s: %q, want %q", match, got, want)
		}
	}
	if got := parsed(t, "rules: [{name: a, match: {qos: [BestEffort]}}, {name: b}]").Warnings(); len(got) > 0 {
		t.Errorf("the last rule is for all: %q", got)
	}
}

// TestModeOfRule verifies that a rule's mode is stronger than that of the policy, and --mode than both.
func TestModeOfRule(t *testing.T) {
	p := parsed(t, "mode: observe\nrules:\n- {name: a, match: {namespaces: [a]}, mode: enforce}\n- {name: b, match: {namespaces: [b]}}")
	for _, tt := range []struct {
		p    *Policy
		want [3]Mode
		some bool
	}{
		{p, [3]Mode{ModeEnforce, ModeObserve, ModeObserve}, true},
		{p.WithMode(ModeObserve), [3]Mode{ModeObserve, ModeObserve, ModeObserve}, false},
		{p.WithMode(ModeEnforce), [3]Mode{ModeEnforce, ModeEnforce, ModeEnforce}, true},
	} {
		var got [3]Mode
		for i, namespace := range []string{"a", "b", "c"} {
			got[i] = tt.p.ForPod(&PodFacts{Namespace: namespace}, nil).Mode()
		}
		if got != tt.want || tt.p.Enforces() != tt.some {
			t.Errorf("%v, want %v; enforces %t", got, tt.want, tt.p.Enforces())
		}
	}
	if p.Rules[0].Mode != ModeEnforce || p.ConcernsUnannotated() || !parsed(t, staged).ConcernsUnannotated() {
		t.Error("the policy itself has changed")
	}
}

// classTest is a pod of a namespace, and the values that a container gets, with their sources.
type classTest struct {
	name, namespace string
	annotations     map[string]string
	want, err       string
}

const bronze = "rule batch, class bronze"

// TestClasses verifies the values that a container gets from a class, and those that win over them.
func TestClasses(t *testing.T) {
	for _, tt := range []classTest{
		{"no rule", "other", nil, "", ""},
		{"class none", "kube-system", nil, "", ""},
		{
			"a class", "batch", nil,
			"sda wbps=20Mi " + bronze + ", sda wiops=500 " + bronze + ", sdb wbps=20Mi " + bronze + ", sdb wiops=500 " + bronze +
				", sdc wbps=20Mi " + bronze + ", sdc wiops=500 " + bronze + ", default=50 " + bronze, "",
		},
		{
			"targets of a class", "rejected", nil,
			"sda wbps=50Mi rule rejected, class silver, sdb wbps=60Mi rule rejected, class silver, sdb riops=100 rule rejected, class silver, sdc wbps=50Mi rule rejected, class silver", "",
		},
		{
			"an annotation for a key", "batch",
			map[string]string{keyEach: "* wbps=2Mi"},
			"sda wbps=2Mi limits/containers #1, sda wiops=500 " + bronze + ", sdb wbps=2Mi limits/containers #1, sdb wiops=500 " + bronze +
				", sdc wbps=2Mi limits/containers #1, sdc wiops=500 " + bronze + ", default=50 " + bronze, "",
		},
		{
			"an annotation for a disk", "batch",
			map[string]string{keyDB: "rootfs wbps=2Mi wiops=60", keyWeight + "container.db": "7"},
			"sda wbps=2Mi limits/container.db #1, sda wiops=60 limits/container.db #1, sdb wbps=20Mi " + bronze + ", sdb wiops=500 " + bronze +
				", sdc wbps=20Mi " + bronze + ", sdc wiops=500 " + bronze + ", default=7 weight/container.db", "",
		},
	} {
		t.Run(tt.name, tt.run)
	}
}

// TestChoices verifies the values that a container gets by a class that an annotation chooses, and by
// annotations that its rule does not allow.
func TestChoices(t *testing.T) {
	for _, tt := range []classTest{
		{
			"a class of an annotation", "other",
			map[string]string{keyClass + "containers": "silver"},
			"", `"silver": the class does not limit riops of * (choose another class: write at most 5k, bounds.max of the node policy)`,
		},
		{
			"a class above the bound of a rate", "batch",
			map[string]string{keyClass + "containers": "gold"},
			"sda wbps=20Mi " + bronze + ", sda wiops=500 " + bronze + ", sdb wbps=20Mi " + bronze + ", sdb wiops=500 " + bronze +
				", sdc wbps=20Mi " + bronze + ", sdc wiops=500 " + bronze + ", default=50 " + bronze,
			`"gold": wbps=200Mi is above the bound (choose another class: write at most 100Mi, bounds.max of rule batch)`,
		},
		{
			"an unknown class", "batch",
			map[string]string{keyClass + "container.db": "bronce", keyEach: "* wbps=2Mi wiops=60"},
			"sda wbps=2Mi limits/containers #1, sda wiops=60 limits/containers #1, sdb wbps=2Mi limits/containers #1, sdb wiops=60 limits/containers #1, " +
				"sdc wbps=2Mi limits/containers #1, sdc wiops=60 limits/containers #1, default=50 " + bronze,
			`"bronce": unknown class (did you mean "bronze"?)`,
		},
		{
			"a class like no other", "kube-system",
			map[string]string{keyClass + "container.db": "platinum"},
			"", `"platinum": unknown class (ask the operators of the cluster for the classes of their node policy)`,
		},
		{"of another container", "kube-system", map[string]string{keyClass + "container.web": "platinum"}, "", ""},
		{
			"ignored", "ignored",
			map[string]string{keyEach: "bad", keyClass + "containers": "nope"},
			"sda wbps=50Mi rule ignored, class silver, sdb wbps=60Mi rule ignored, class silver, sdb riops=100 rule ignored, class silver, sdc wbps=50Mi rule ignored, class silver", "",
		},
		{
			"rejected", "rejected",
			map[string]string{keyDB: "rootfs wbps=1Mi"},
			"sda wbps=50Mi rule rejected, class silver, sdb wbps=60Mi rule rejected, class silver, sdb riops=100 rule rejected, class silver, sdc wbps=50Mi rule rejected, class silver",
			"rule rejected of the node policy does not allow annotations (remove the annotation)",
		},
	} {
		t.Run(tt.name, tt.run)
	}
}

func (tt *classTest) run(t *testing.T) {
	facts := &PodFacts{Namespace: tt.namespace}
	if tt.namespace == "batch" {
		facts = batch()
	}
	pod := parsed(t, staged).ForPod(facts, annotation.Parse(tt.annotations))
	c := db()
	c.MemoryLimited = true
	d, err := pod.Container(c)
	got := ""
	if err != nil {
		_, got, _ = strings.Cut(strings.TrimPrefix(err.Error(), "nri-blkio: "), ": ")
	}
	if got != tt.err || (err == nil) != (len(d.Errors) == 0) {
		t.Errorf("%s\nwant %s", got, tt.err)
	}
	var all []string
	for _, s := range d.Settings {
		amount := annotation.FormatAmount(s.Key, s.Amount)
		all = append(all, strings.TrimLeft(d.Disks[s.Dev]+" "+s.Key.String()+"="+amount+" "+s.Source.String(), " "))
	}
	if diff := cmp.Diff(tt.want, strings.Join(all, ", ")); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if isIgnored := tt.namespace == "ignored"; isIgnored != (len(d.WarningKinds) == 1 && d.WarningKinds[0] == IgnoredAnnotations) {
		t.Errorf("warnings %q, %q", d.WarningKinds, d.Warnings)
	}
}

// TestClassOfAnnotation verifies that a class of container.NAME is before one of containers, and both are
// before that of the rule.
func TestClassOfAnnotation(t *testing.T) {
	p := parsed(t, "classes: {a: {weight: 1}, b: {weight: 2}, c: {limits: ['* wbps=3Mi']}}\nrules: [{name: r, class: a}]")
	pod := p.ForPod(&PodFacts{}, annotation.Parse(map[string]string{keyClass + "containers": "b", keyClass + "container.db": "c"}))
	for name, want := range map[string]Source{"db": {Kind: FromClass, Name: "c", IsStar: true, Target: "*"}, "web": {Kind: FromClass, Name: "b"}} {
		d, err := pod.Container(Container{Name: name, Rootfs: on(sda), MemoryLimited: true})
		if err != nil || len(d.Settings) != 1 || d.Settings[0].Source != want {
			t.Errorf("%s: %v, %+v", name, err, d.Settings)
		}
	}
	if !pod.StarOf("db") || pod.StarOf("web") {
		t.Error("undeclared disks are those of a class with a limit for *")
	}
	if diff := cmp.Diff(annotation.Targets{Widest: annotation.Star, Weights: true}, pod.Targets()); diff != "" {
		t.Error(diff)
	}
	if d, err := pod.Total(nil); err != nil || d.Settings != nil {
		t.Errorf("the pod as a whole has %v, %v", d.Settings, err)
	}
}

// TestChoiceWithoutWeight verifies that a class without a weight counts with the kernel's default weight, and
// that the error says so.
func TestChoiceWithoutWeight(t *testing.T) {
	p := parsed(t, "classes: {a: {limits: ['* wbps=1Mi']}}\nbounds: {weight: {max: 60}}")
	_, err := p.of(annotation.Parse(map[string]string{keyClass + "containers": "a"})).Container(db())
	const want = "nri-blkio: " + keyClass + `containers: "a": the weight is too large: 100, which is that of a class without one ` +
		"(choose another class: write at most 60, bounds.weight.max of the node policy)"
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

// TestClassNotEnforced verifies that a value of a class that a node cannot enforce is skipped and counted, and
// is no error.
func TestClassNotEnforced(t *testing.T) {
	p := parsed(t, "classes: {a: {limits: ['* wbps=3Mi', '/data wbps=2Mi', '/logs wbps=4Mi', '@scratch wbps=1Mi', '/none wbps=5Mi'], weight: 5}}\nrules: [{name: r, class: a}]")
	pod := p.ForPod(&PodFacts{}, annotation.Parse(nil))
	memory := Container{Name: "m", Rootfs: tmpfs(), Mounts: []Mount{mount("/data", tmpfs())}, MemoryLimited: true}
	full := db()
	full.MemoryLimited = true
	for _, tt := range []struct {
		name     string
		pod      *Pod
		c        Container
		limits   []string
		skipped  int
		warnings []string
		counted  bool
	}{
		{"all", pod, Container{Name: "x", Rootfs: on(sda), MemoryLimited: true}, []string{"sda wbps=3145728"}, 4, nil, false},
		{
			"two paths on one disk", pod, full,
			[]string{"sda wbps=3145728", "sdb wbps=2097152", "sdc wbps=3145728"},
			3,
			[]string{`"rule r, class a": conflicting wbps on disk sdb 8:16: "/logs" has 4Mi, "/data" in entry 2 has 2Mi: the lower value holds`},
			true,
		},
		{
			"no disk at all", pod, memory, nil, 6,
			[]string{`"rule r, class a": no disk to limit wbps on: rootfs: tmpfs is memory, not a disk, and 1 more`},
			true,
		},
		{"another kernel", p.ForPod(&PodFacts{Handler: "kata"}, annotation.Parse(nil)), full, nil, 1, nil, true},
	} {
		d, err := tt.pod.Container(tt.c)
		counted := false
		for _, kind := range d.WarningKinds {
			counted = counted || kind == NotEnforced
		}
		if err != nil || len(d.Skipped) != tt.skipped || counted != tt.counted {
			t.Errorf("%s: %v, counted %t, skipped %+v", tt.name, err, counted, d.Skipped)
		}
		if diff := cmp.Diff(tt.limits, limits(d)) + cmp.Diff(tt.warnings, d.Warnings); diff != "" {
			t.Errorf("%s: -want +got:\n%s", tt.name, diff)
		}
	}
	d, _ := pod.Container(full)
	if err := d.dropFile(blkio.IOWeight); err != nil || amount(d, blkio.Weight) != 0 || len(d.Warnings) != 2 {
		t.Errorf("without io.weight: %v, %q", err, d.Warnings)
	}
	d, err := pod.Container(Container{Name: "now", Rootfs: blkio.Backing{Err: errNow, Reason: "this node failed to look"}})
	if e := asError(t, err); e == nil || e.Kind() != annotation.Internal || e.From.Field != "classes.a.limits" || len(d.Errors) != 1 {
		t.Errorf("a failure of ours: %v", err)
	}
}

// TestForeign verifies that under another kernel, annotations are an error and a class is not.
func TestForeign(t *testing.T) {
	p := parsed(t, staged)
	kata := &PodFacts{Namespace: "rejected", Handler: "kata"}
	if d, err := p.ForPod(kata, annotation.Parse(map[string]string{keyDB: "x"})).Container(db()); err == nil || len(d.Errors) != 1 || d.Settings != nil {
		t.Errorf("annotations that are rejected: %v", err)
	}
	pod := p.ForPod(&PodFacts{Handler: "kata"}, annotation.Parse(map[string]string{keyTotal: "* wbps=1Mi"}))
	if _, err := pod.Total(nil); err == nil || pod.StarOf("db") {
		t.Errorf("pod-total: %v", err)
	}
}

// BenchmarkRuleFor measures the cost of each event of a pod without annotations.
func BenchmarkRuleFor(b *testing.B) {
	var text strings.Builder
	text.WriteString("classes: {bronze: {weight: 50}}\nrules:\n")
	for i := range 50 {
		text.WriteString("- {name: r" + string(rune('a'+i%26)) + string(rune('a'+i/26)) + ", match: {namespaces: ['tenant-*-x', other], podSelector: {matchLabels: {tier: t}}, qos: [BestEffort, Burstable]}, class: bronze}\n")
	}
	p, pod := parsed(b, text.String()), &PodFacts{Namespace: "tenant-with-a-name-y", Labels: batch().Labels, QOS: Burstable}
	b.ReportAllocs()
	for b.Loop() {
		if p.Concerns(pod) {
			b.Fatal("it matches")
		}
	}
}

// TestForeignIgnored verifies that ignored annotations are warned of under another kernel as well, with a class
// or without.
func TestForeignIgnored(t *testing.T) {
	for text, kinds := range map[string][]blkio.WarningKind{
		"rules: [{name: r, annotations: ignore}]":                                      {IgnoredAnnotations},
		"classes: {a: {weight: 5}}\nrules: [{name: r, class: a, annotations: ignore}]": {IgnoredAnnotations, NotEnforced},
	} {
		d, err := parsed(t, text).ForPod(&PodFacts{Handler: "kata"}, annotation.Parse(map[string]string{keyEach: "* wbps=1Mi"})).Container(db())
		if diff := cmp.Diff(kinds, d.WarningKinds); err != nil || diff != "" || len(d.Warnings) != 1 || !strings.Contains(d.Warnings[0], "rule r") {
			t.Errorf("%s: %v, %q\n%s", text, err, d.Warnings, diff)
		}
	}
}
