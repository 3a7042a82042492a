package policy

import (
	"slices"
	"strings"
	"testing"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// byKind has rules with classes for kinds of containers.
const byKind = `
classes:
  gold: {limits: ["* wbps=200Mi"]}
  bronze: {limits: ["* wbps=20Mi"], weight: 50}
  data: {limits: ["/data riops=100"]}
rules:
- {name: batch, match: {namespaces: [batch]}, class: bronze, containerClasses: {init: none, sidecar: gold}}
- {name: only, match: {namespaces: [only]}, containerClasses: {init: data, ephemeral: bronze}}
- {name: plain, match: {namespaces: [plain]}, class: gold}
budgets: [{namespaces: [tenant], limits: ["* wbps=1Gi"]}]
`

// TestClassOfKind verifies which class a container of each kind has, with its source, and that one whose kind is unknown has the
// class of the rule. A class that an annotation chooses is stronger.
func TestClassOfKind(t *testing.T) {
	p := parsed(t, byKind)
	kinds := ContainerKinds{"setup": InitContainer, "proxy": SidecarContainer, "debug": EphemeralContainer}
	const ofBronze, ofGold = "wbps=20Mi rule batch, class bronze", "wbps=200Mi rule batch, class gold"
	for _, tt := range []struct {
		namespace, container, chosen string
		kinds                        ContainerKinds
		want                         string
	}{
		{"batch", "main", "", kinds, ofBronze},
		{"batch", "setup", "", kinds, ""},
		{"batch", "proxy", "", kinds, ofGold},
		{"batch", "debug", "", kinds, ofBronze},
		{"batch", "setup", "", nil, ofBronze},
		{"batch", "setup", "", ContainerKinds{}, ofBronze},
		{"batch", "setup", "gold", kinds, "wbps=200Mi class gold"},
		{"batch", "main", "gold", kinds, "wbps=200Mi class gold"},
		{"only", "main", "", kinds, ""},
		{"only", "setup", "", kinds, "riops=100 rule only, class data"},
		{"only", "proxy", "", kinds, ""},
		{"only", "debug", "", kinds, "wbps=20Mi rule only, class bronze"},
		{"only", "debug", "", nil, ""},
		{"plain", "setup", "", kinds, "wbps=200Mi rule plain, class gold"},
		{"other", "setup", "", kinds, ""},
	} {
		annotations := map[string]string{}
		if tt.chosen != "" {
			annotations[keyClass+"container."+tt.container] = tt.chosen
			annotations[keyWeight+"container.main"] = "50" // the rest of the scope counts as well
		}
		pod, c := p.ForPod(&PodFacts{Namespace: tt.namespace, Kinds: tt.kinds}, annotation.Parse(annotations)), db()
		c.Name, c.MemoryLimited = tt.container, true
		d, err := pod.Container(c)
		var got []string
		for _, s := range d.Settings {
			text := s.Key.String() + "=" + annotation.FormatAmount(s.Key, s.Amount) + " " + s.Source.String()
			if s.Key.IsRate() && !slices.Contains(got, text) {
				got = append(got, text)
			}
		}
		if err != nil || strings.Join(got, ", ") != tt.want {
			t.Errorf("%+v: %q, %v", tt, got, err)
		}
		if star := strings.HasPrefix(tt.want, "wbps"); pod.StarOf(tt.container) != star {
			t.Errorf("%+v: * applies: %t", tt, !star)
		}
	}
}

// TestConcernsKinds verifies that a policy concerns the pods that have a container of a kind with a class, and that only the targets
// of such classes are searched for.
func TestConcernsKinds(t *testing.T) {
	p := parsed(t, byKind)
	for _, tt := range []struct {
		namespace  string
		kinds      ContainerKinds
		concerns   bool
		star, path bool // among the targets
	}{
		{"batch", nil, true, true, false},
		{"only", nil, false, false, false},
		{"only", ContainerKinds{"a": SidecarContainer}, false, false, false},
		{"only", ContainerKinds{"a": InitContainer}, true, false, true},
		{"only", ContainerKinds{"a": EphemeralContainer}, true, true, false},
	} {
		facts := &PodFacts{Namespace: tt.namespace, Kinds: tt.kinds}
		pod := p.ForPod(facts, nil)
		if p.Concerns(facts) != tt.concerns || pod.IsEmpty() == tt.concerns {
			t.Errorf("%+v: concerns %t, empty %t", tt, p.Concerns(facts), pod.IsEmpty())
		}
		if got := pod.Targets(); got.HasStar() != tt.star || slices.Contains(got.Paths, "/data") != tt.path {
			t.Errorf("%+v: targets %+v", tt, got)
		}
	}
	for text, want := range map[string]bool{
		"{name: r, containerClasses: {init: bronze}}": true, "{name: r, containerClasses: {init: none, sidecar: none}}": false, "{name: r, containerClasses: {}}": false,
	} {
		if got := parsed(t, "classes: {bronze: {weight: 50}}\nrules: ["+text+"]").ConcernsUnannotated(); got != want {
			t.Errorf("%s: concerns pods without annotations: %t", text, got)
		}
	}
}

// TestKindWithoutLimit verifies that a budget rejects a container whose kind has no class, as any other without a limit.
func TestKindWithoutLimit(t *testing.T) {
	p := parsed(t, strings.Replace(byKind, "namespaces: [batch]", "namespaces: [tenant]", 1))
	kinds := ContainerKinds{"db": InitContainer}
	for of, want := range map[string]string{"db": "wbps of * needs a limit", "main": ""} {
		pod, c := p.ForPod(&PodFacts{Namespace: "tenant", Kinds: kinds}, nil), db()
		c.Name = of
		d, err := pod.Container(c)
		if err != nil {
			t.Fatal(err)
		}
		claim := Claim{Pod: pod, Desired: &d, Own: &Share{}, Others: func(blkio.Address) Granted { return Granted{} }}
		got := claim.Check()
		if (got == nil) != (want == "") || got != nil && !strings.Contains(got.Error(), want) {
			t.Errorf("%s: %v, want %q", of, got, want)
		}
	}
}

// TestForeignKind verifies that the class that is skipped under another kernel is that of the container's kind.
func TestForeignKind(t *testing.T) {
	p := parsed(t, byKind)
	pod := p.ForPod(&PodFacts{Namespace: "batch", Handler: "kata", Kinds: ContainerKinds{"setup": InitContainer}}, nil)
	for name, want := range map[string]int{"setup": 0, "main": 1} {
		if d, err := pod.Container(Container{Name: name}); err != nil || len(d.Skipped) != want {
			t.Errorf("%s: %+v, %v", name, d.Skipped, err)
		}
	}
}

// TestContainerKinds verifies which kinds a policy distinguishes, and which containers are of them.
func TestContainerKinds(t *testing.T) {
	p := parsed(t, byKind)
	if got := p.ContainerKinds(); !slices.Equal(got, []ContainerKind{"init", "sidecar", "ephemeral"}) {
		t.Errorf("kinds %q", got)
	}
	if got := parsed(t, staged).ContainerKinds(); got != nil {
		t.Errorf("kinds %q without any", got)
	}
	one := parsed(t, "rules: [{name: r, containerClasses: {sidecar: none}}]").ContainerKinds()
	kinds := ContainerKinds{"setup": InitContainer, "proxy": SidecarContainer}
	for _, tt := range []struct {
		of     ContainerKinds
		wanted []ContainerKind
		want   ContainerKinds
	}{
		{kinds, one, ContainerKinds{"proxy": SidecarContainer}}, {kinds, nil, nil}, {nil, one, nil}, {ContainerKinds{}, one, ContainerKinds{}},
	} {
		if got := tt.of.Of(tt.wanted); !got.Equal(tt.want) {
			t.Errorf("%q of %q: %v, want %v", tt.wanted, tt.of, got, tt.want)
		}
	}
	if kinds.Equal(ContainerKinds{"setup": InitContainer, "proxy": InitContainer}) || (ContainerKinds{}).Equal(nil) {
		t.Error("different kinds are equal")
	}
}
