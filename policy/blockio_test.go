package policy

import (
	"slices"
	"strings"
	"testing"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

const (
	keyBlockio   = "blockio.resources.beta.kubernetes.io/pod"
	keyBlockioDB = "blockio.resources.beta.kubernetes.io/container.db"
)

// TestBlockioClass verifies that annotations of blockio classes choose a class as the plugin's own do.
func TestBlockioClass(t *testing.T) {
	p := parsed(t, `classes:
  gold: {limits: ["* rbps=500Mi wbps=200Mi"], weight: 100}
  bronze: {limits: ["* wbps=20Mi"]}
  light: {weight: 10}
bounds: {weight: {min: 50}}
rules:
- {name: unbound, match: {namespaces: [unbound]}, bounds: {weight: {min: 1}}}
- {name: ruled, match: {namespaces: [ruled]}, class: gold}
- {name: ignored, match: {namespaces: [ignored]}, class: bronze, annotations: ignore}
- {name: rejected, match: {namespaces: [rejected]}, class: bronze, annotations: reject}
`)
	for _, tt := range []struct {
		name        string
		facts       *PodFacts
		annotations map[string]string
		class, err  string
	}{
		{"out of bounds", &PodFacts{}, map[string]string{keyBlockio: "light"}, "", "the weight is too small: 10"},
		{"without bounds", &PodFacts{Namespace: "unbound"}, map[string]string{keyBlockio: "Light"}, "light", ""},
		{"one", &PodFacts{Namespace: "unbound"}, map[string]string{keyBlockio: "light", keyBlockioDB: "GOLD"}, "gold", ""},
		{"in place of the rule's", &PodFacts{Namespace: "ruled"}, map[string]string{keyBlockio: "bronze"}, "bronze", ""},
		{"unknown", &PodFacts{Namespace: "unbound"}, map[string]string{keyBlockio: "Brons"}, "", keyBlockio + `: "Brons": unknown class (did you mean "bronze"?)`},
		{"unlike any", &PodFacts{Namespace: "unbound"}, map[string]string{keyBlockio: "x"}, "", "unknown class (ask the operators of the cluster for the classes of their node policy)"},
		{"ignored by a rule", &PodFacts{Namespace: "ignored"}, map[string]string{keyBlockio: "gold"}, "bronze", ""},
		{"rejected by a rule", &PodFacts{Namespace: "rejected"}, map[string]string{keyBlockio: "gold"}, "bronze", "rule rejected of the node policy does not allow annotations"},
		{"beside a weight", &PodFacts{Namespace: "unbound"}, map[string]string{keyBlockio: "gold", keyWeight + "containers": "7"}, "", ""},
	} {
		pod := p.ForPod(tt.facts, annotation.Parse(tt.annotations))
		c := db()
		c.MemoryLimited = true
		d, err := pod.Container(c)
		if got := pod.Class("db"); got != tt.class || (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%s: class %q, want %q; %v", tt.name, got, tt.class, err)
		}
		if err != nil && p.Action(err) != Reject {
			t.Errorf("%s: %v is not invalid", tt.name, err)
		}
		for _, s := range d.Settings {
			if tt.err == "" && tt.facts.Namespace == "unbound" && tt.class != "" && s.Source.Text() != "class "+tt.class {
				t.Errorf("%s: from %s", tt.name, s.Source.Text())
			}
		}
	}
}

// TestBlockioBeside verifies that annotations of blockio classes have no effect beside the plugin's own, and that a
// warning names them.
func TestBlockioBeside(t *testing.T) {
	p := parsed(t, "classes: {gold: {weight: 80}}")
	d, err := p.of(annotation.Parse(map[string]string{keyBlockio: "gold", keyBlockioDB: "absent", keyDB: "* wbps=1Mi"})).Container(db())
	const want = keyBlockioDB + " has no effect: the pod also has annotations of blkio.noderesource.dev"
	if _, weighs := d.Settings.Weight(); err != nil || weighs || !slices.Contains(d.Warnings, want) || !slices.Contains(d.WarningKinds, IgnoredAnnotations) {
		t.Errorf("%v, %+v", err, d)
	}
	d, err = p.of(annotation.Parse(map[string]string{keyBlockio: "gold"})).Container(db())
	if w, _ := d.Settings.Weight(); err != nil || w.Amount != 80 || len(d.Warnings) > 0 {
		t.Errorf("%v, %+v", err, d)
	}
}

// TestWithoutClasses verifies that annotations of blockio classes are those of the runtime alone under a policy without
// classes, unless a rule rejects annotations: TestBlockioIsRejected.
func TestWithoutClasses(t *testing.T) {
	annotations := map[string]string{keyBlockio: "gold"}
	for text, heeds := range map[string]bool{"": false, "rules: [{name: r, annotations: ignore}]": false, "classes: {gold: {weight: 80}}": true} {
		p := parsed(t, text)
		pod := p.ForPod(&PodFacts{}, annotation.Parse(annotations))
		d, err := pod.Container(db())
		if err != nil || pod.IsEmpty() == heeds || (len(d.Settings) > 0) != heeds || p.Heeds(annotations) != heeds {
			t.Errorf("%s: %v, %+v, heeds %t", text, err, d, p.Heeds(annotations))
		}
		if !p.Heeds(map[string]string{keyDB: ""}) || p.Heeds(map[string]string{"a": "b"}) {
			t.Errorf("%s: not as without annotations of blockio classes", text)
		}
	}
}

// TestBlockioGranted verifies that a container keeps the limits of a class when the policy loses the class.
func TestBlockioGranted(t *testing.T) {
	request := annotation.Parse(map[string]string{keyBlockio: "Gold"})
	former, err := parsed(t, `classes: {gold: {limits: ["* wbps=5Mi"]}, other: {weight: 5}}`).of(request).Container(db())
	if err != nil {
		t.Fatal(err)
	}
	d, err := parsed(t, `classes: {other: {weight: 5}}`).of(request).Container(db())
	if err == nil {
		t.Fatal("the class is still known")
	}
	d.KeepGranted(former)
	if s, _ := d.Settings.Get(blkio.Address{Key: blkio.Wbps, Dev: sda.Dev}); s.Amount != 5<<20 {
		t.Errorf("%+v", d.Settings)
	}
}

// TestBlockioIsRejected verifies that a rule that rejects annotations rejects those of blockio classes also if the policy has no
// classes: the runtime may have some.
func TestBlockioIsRejected(t *testing.T) {
	annotations := map[string]string{keyBlockio: "HighPrio"}
	for how, want := range map[string]bool{"allow": false, "ignore": false, "reject": true} {
		pol, err := ParseFile([]byte(fileHead + "rules: [{name: tenants, match: {namespaces: ['tenant-*']}, annotations: " + how + "}]\n"))
		if err != nil {
			t.Fatal(err)
		}
		_, err = pol.ForPod(&PodFacts{Namespace: "tenant-a"}, annotation.Parse(annotations)).Container(Container{Name: "a"})
		if got := err != nil && strings.Contains(err.Error(), keyBlockio); got != want || pol.Heeds(annotations) != want {
			t.Errorf("%s: %v, heeded: %v", how, err, pol.Heeds(annotations))
		}
	}
}
