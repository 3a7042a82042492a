package expect

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/nri-blkio/nri-blkio/plugin/manifest"
)

// TestHostileValues verifies that a file with any value of a field is refused with its line, or its case can be
// compared. The error is the same each time, and has no control character of the value.
func TestHostileValues(t *testing.T) {
	checker, refused := testChecker(t), 0
	values := []any{
		"", " ", "\x1b[2J\x1b[31m", "\u202egnp.exe", "a\r\nb", "\x00", `"`, "'", "%s%n", "*", "[", "none", "true", "-", strings.Repeat("a", 64<<10), strings.Repeat("🙈", 300), strings.Repeat("/", 5000),
		0, -1, 1.5, 1e300, 9007199254740993, true, false, nil,
		[]any{},
		[]any{[]any{}},
		map[string]any{},
		map[string]any{"\x1b": nil},
		map[string]any{"target": "*", "wbps": "1Mi"},
		[]any{map[string]any{"target": "rootfs", "weight": 1}},
	}
	places := []string{
		`"name": %s, "expect": {"rule": "a"}`, `"name": "a", "pod": %s, "expect": {"rule": "a"}`, `"name": "a", "expect": %s`, `"name": "a", "expect": {"rule": %s}`, `"name": "a", "expect": {"mode": %s}`,
		`"name": "a", "pod": {"namespace": %s}, "expect": {"rule": "a"}`, `"name": "a", "pod": {"labels": {"x": %s}}, "expect": {"rule": "a"}`, `"name": "a", "pod": {"qosClass": %s}, "expect": {"rule": "a"}`,
		`"name": "a", "pod": {"containers": %s}, "expect": {"rule": "a"}`, `"name": "a", "pod": {"containers": [%s]}, "expect": {"rule": "a"}`, `"name": "a", "pod": {"manifest": %s, "name": "b"}, "expect": {"rule": "a"}`,
		`"name": "a", "pod": {"annotations": {"limits.blkio.noderesource.dev/containers": %s}}, "expect": {"eachContainer": {"refused": false}}`,
		`"name": "a", "expect": {"eachContainer": %s}`, `"name": "a", "expect": {"eachContainer": {"class": %s}}`, `"name": "a", "expect": {"eachContainer": {"refused": %s}}`, `"name": "a", "expect": {"containers": {"main": %s}}`,
		`"name": "a", "expect": {"podTotal": {"limits": %s}}`, `"name": "a", "expect": {"podTotal": {"limits": [{"target": %s, "wbps": "1Mi"}]}}`, `"name": "a", "expect": {"podTotal": {"limits": [{"target": "*", "wbps": %s}]}}`,
		`"name": "a", "expect": {"podTotal": {"limits": [{"target": "*", "wiops": "max", "from": %s}]}}`, `"name": "a", "expect": {"podTotal": {"weight": %s}}`, `"name": "a", "expect": {"podTotal": {"weights": [{"target": "*", "weight": %s}]}}`,
	}
	for _, place := range places {
		for _, value := range values {
			text, err := json.Marshal(value)
			if err != nil {
				t.Fatal(err)
			}
			file := fmt.Appendf(nil, `{"apiVersion": "blkio.noderesource.dev/v1alpha1", "kind": "NodePolicyTest", "cases": [{`+place+`}]}`, text)
			cases, err := Parse(file)
			if err != nil {
				refused++
				if _, again := Parse(file); again == nil || again.Error() != err.Error() {
					t.Errorf("%.300s:\n%v, then\n%v", file, err, again)
				}
				if _, isText := value.(string); isText && strings.ContainsAny(err.Error(), "\x00\x1b\r") {
					t.Errorf("%.300s: %q", file, err)
				}
				continue
			}
			if m, err := cases[0].Pod.Find(&manifest.Set{}); err == nil {
				cases[0].Compare(t.Context(), checker, m)
			}
		}
	}
	if all := len(places) * len(values); refused < all/4 || refused > all*9/10 {
		t.Errorf("%d of %d files were refused", refused, all)
	}
}

// TestEachFieldCounts verifies that a change of any value in a file changes a case, or is an error. A field
// that were decoded and then forgotten would let its case pass.
func TestEachFieldCounts(t *testing.T) {
	want, err := Parse([]byte(full))
	if err != nil {
		t.Fatal(err)
	}
	changed := 0
	for old, other := range map[string]string{
		"name: all": "name: other", "namespace: batch-1": "namespace: batch-2", "tier: batch": "tier: web", "qosClass: Burstable": "qosClass: Guaranteed", `"* wbps=1Mi"`: `"* wbps=2Mi"`, "[a, b]": "[b, a]",
		"rule: batch": "rule: none", "mode: observe": "mode: enforce", "Ignored: true": "Ignored: false", "class: none": "class: some", "refused: false": "refused: true", "limits: []": `limits: [{target: "*", rbps: max}]`,
		"above the bound": "below the bound", "target: /data": "target: /logs", "rbps: 1Mi": "rbps: 1M", "wbps: max": "wbps: 1Mi", "riops: 5": "riops: 6", "wiops: 1k": "wiops: max", "from: class silver": "from: class gold",
		"weight: 50": "weight: none", "target: rootfs": "target: '@data'", "rootfs, weight: none": "rootfs, weight: 1", "from: x": "from: other", "{refused: true}": "{refused: why}", "wbps: 2Mi": "wbps: max", "weight: none, weights": "weight: 3, weights",
		"weights: []": "weights: [{target: '*', weight: 5}]", "manifest: db.yaml": "manifest: cache.yaml", "kind: StatefulSet": "kind: Job", "name: db,": "name: cache,", "namespace: prod": "namespace: test", "mode: enforce": "rule: none",
	} {
		if strings.Count(full, old) < 1 {
			t.Errorf("the file has no %q", old)
			continue
		}
		got, err := Parse([]byte(strings.Replace(full, old, other, 1)))
		if err != nil {
			t.Errorf("%s for %s: %v", other, old, err)
			continue
		}
		if reflect.DeepEqual(want, got) {
			t.Errorf("%s for %s changes nothing", other, old)
		}
		changed++
	}
	for i := range strings.Split(full, "\n") { // and without one of its lines
		lines := strings.Split(full, "\n")
		text := strings.Join(append(lines[:i], lines[i+1:]...), "\n")
		if got, err := Parse([]byte(text)); err == nil && reflect.DeepEqual(want, got) && i < len(lines)-1 {
			t.Errorf("line %d of the file has no effect", i+1)
		}
	}
	if changed < 30 {
		t.Errorf("only %d values changed", changed)
	}
}

// TestEmptyFields verifies that a field of a case without a value is an error, and so is a wrong type, with the
// line.
func TestEmptyFields(t *testing.T) {
	lines := strings.Split(strings.TrimSuffix(full, "\n"), "\n")
	for i, line := range lines {
		name, value, _ := strings.Cut(line, ": ")
		if value == "" || strings.HasSuffix(name, "containers") && value == "[a, b]" {
			continue
		}
		for replacement, want := range map[string]string{"": ": Required value", "[[1.5]]": ": Invalid value"} {
			if replacement != "" && strings.HasSuffix(name, "refused") {
				continue // any text can be a part of an error
			}
			changed := slices.Clone(lines)
			changed[i] = name + ": " + replacement
			_, err := Parse([]byte(strings.Join(changed, "\n")))
			if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "line "+strconv.Itoa(i+1)+": ") {
				t.Errorf("line %d, %s: %v", i+1, changed[i], err)
			}
		}
	}
}

// TestManyCases verifies that the work for a file grows with its size, and not with its square.
func TestManyCases(t *testing.T) {
	file := func(cases int) []byte {
		var b strings.Builder
		b.WriteString(fileHead)
		for i := range cases {
			fmt.Fprintf(&b, "- {name: c%d, expect: {rule: a, eachContainer: {limits: [{target: rootfs, wbps: 1Mi}]}}}\n", i)
		}
		return []byte(b.String())
	}
	work := func(cases int) float64 {
		text := file(cases)
		return testing.AllocsPerRun(1, func() {
			got, err := Parse(text)
			if err != nil || len(got) != cases || got[cases-1].Line != cases+3 {
				t.Fatalf("%d cases: %v", len(got), err)
			}
		})
	}
	if few, many := work(50), work(200); many > 5*few {
		t.Errorf("%.0f allocations for 50 cases, %.0f for 200", few, many)
	}
}

// TestHostileNames verifies that the error about a pod that is not found is one line of printable ASCII, and is
// bounded.
func TestHostileNames(t *testing.T) {
	set := &manifest.Set{Pods: make([]manifest.Pod, 1)}
	for _, name := range []string{"\x1b[2J", "a\nb", "\xff\xfe", strings.Repeat("x", 1<<20), strings.Repeat("\u202e", 500), "%s", `"`} {
		set.Pods[0].Name, set.Pods[0].Kind = name+"x", name
		for _, p := range []Pod{{Name: name}, {Name: name, Kind: name, Namespace: name}, {Manifest: name, Kind: name + "y", Namespace: name}} {
			_, err := p.Find(set)
			if err == nil {
				t.Errorf("%.40q: found", name)
				continue
			}
			line := err.Error()
			if i := strings.IndexFunc(line, func(r rune) bool { return r < ' ' || r > '~' }); i >= 0 || len(line) > 400 || !strings.HasPrefix(line, "none with ") {
				t.Errorf("%.40q: %d bytes, %q", name, len(line), line)
			}
		}
	}
}
