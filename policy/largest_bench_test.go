package policy

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// largestPolicy has 50 rules, and the last one matches. It has 20 classes with 64 limits each.
func largestPolicy(b *testing.B) *Policy {
	b.Helper()
	var text strings.Builder
	text.WriteString("bounds: {max: ['* wbps=1Gi'], min: ['* wiops=10']}\nclasses:\n")
	for i := range 20 {
		fmt.Fprintf(&text, "  c%d:\n    weight: 50\n    limits:\n    - '* wbps=20Mi'\n", i)
		for k := range 63 {
			fmt.Fprintf(&text, "    - /volumes/%d/%d wbps=%dMi wiops=500\n", k, i, 1+k)
		}
	}
	text.WriteString("rules:\n")
	for i := range 50 {
		value := "other"
		if i == 49 {
			value = "team"
		}
		fmt.Fprintf(&text, "- name: r%d\n  class: c%d\n  match:\n    namespaces: ['a*-*-*x', 'b-*', '[t-u]e?m-*', '*-*-*-*']\n    qos: [BestEffort, Burstable]\n", i, i%20)
		fmt.Fprintf(&text, "    podSelector: {matchLabels: {app: a, label-500: v}, matchExpressions: [{key: team, operator: In, values: [red, blue, %s]}, {key: zone, operator: DoesNotExist}]}\n", value)
	}
	return parsed(b, text.String())
}

// largestPod has 64 annotations with 1,024 entries in total, and 1,000 labels. 55 annotations choose a class.
func largestPod() (*PodFacts, map[string]string) {
	facts := &PodFacts{Namespace: "team-with-a-long-name", QOS: Burstable, Labels: map[string]string{"app": "a", "team": "team"}}
	for i := range 1000 {
		facts.Labels[fmt.Sprintf("label-%d", i)] = "v"
	}
	annotations := map[string]string{}
	for i := range 55 {
		annotations[fmt.Sprintf("%scontainer.c%d", keyClass, i)] = fmt.Sprintf("c%d", i%20)
	}
	entries := func(from, n int) string {
		var text strings.Builder
		for i := range n {
			fmt.Fprintf(&text, "\"/volumes/%d/%s\" wbps=50Mi rbps=1Mi wiops=20 riops=2k; ", from+i, strings.Repeat("d", 150))
		}
		return text.String()
	}
	const c0 = "limits.blkio.noderesource.dev/container.c0"
	annotations[c0], annotations[keyEach], annotations[keyTotal] = entries(0, 256), entries(200, 256), entries(0, 256)
	annotations[keyWeight+"containers"] = strings.Repeat("/w 5;", 200) // duplicates: each is an error
	for i := range 5 {
		annotations[fmt.Sprintf("limits.blkio.noderesource.dev/container.d%d", i)] = entries(i, 11)
	}
	return facts, annotations
}

// largestContainer has 1,000 volumes on 8 disks.
func largestContainer() Container {
	c := db()
	c.Name = "c0"
	for i := range 1000 {
		disk := sda
		disk.Dev.Minor, disk.Name = uint32(16*(i%8)), string(rune('a'+i%8))
		c.Mounts = append(c.Mounts, mount(fmt.Sprintf("/volumes/%d", i), on(disk)))
	}
	return c
}

// BenchmarkLargest decides about the largest pod that the grammar allows, under a large policy.
func BenchmarkLargest(b *testing.B) {
	p, c := largestPolicy(b), largestContainer()
	facts, annotations := largestPod()
	r := annotation.Parse(annotations)
	pod := p.ForPod(facts, r)
	d, _ := pod.Container(c)
	if pod.Rule() != "r49" || len(r.Keys()) < 63 || len(d.Settings) < 30 {
		b.Fatalf("rule %q, %d annotations, %d settings", pod.Rule(), len(r.Keys()), len(d.Settings))
	}
	for name, run := range map[string]func(){
		"Parse":     func() { annotation.Parse(annotations) },
		"Rule":      func() { p.ruleFor(facts) },
		"ForPod":    func() { p.ForPod(facts, r) },
		"Container": func() { _, _ = pod.Container(c) },
		"Total":     func() { _, _ = pod.Total([]Container{c, c, c, c}) },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				run()
			}
		})
	}
}
