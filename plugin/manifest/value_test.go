package manifest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// values reads a document whose findings are in the returned set.
func values(t *testing.T, in string) (value, *Set) {
	t.Helper()
	docs, problem := chunk{text: []byte(in)}.parse()
	if problem != nil || len(docs) != 1 {
		t.Fatal(docs, problem)
	}
	set := &Set{}
	d := &document{set: set, file: "in", number: 1, visits: maxVisits, seen: map[Finding]bool{}}
	return value{doc: d}.at(docs[0], nil), set
}

func texts(s *Set) []string {
	var out []string
	for i := range s.Findings {
		out = append(out, s.Findings[i].String())
	}
	return out
}

func TestField(t *testing.T) {
	const in = `
a: {b: {c: x}}
base: &base {k: base, only: base}
more: &more {k: more, also: more}
one: {<<: *base, k: own}
two: {k: own, <<: [*base, *more]}
both: {<<: [*base, *more]}
alias: *base
twice: {k: first, k: last}
quoted: {"<<": {k: x}}
inline: {<<: [{k: inline}, *more]}
nothing: {<<: text, k: own}
wrong: {<<: [x, *base]}
name: &name k
keyed: {*name : by its alias}
`
	v, set := values(t, in)
	for path, want := range map[string]string{
		"a b c": "x", "a b d": "", "a x c": "", "one k": "own", "one only": "base", "two k": "own", "two also": "more",
		"both k": "base", "both also": "more", "alias k": "base", "twice k": "last", "quoted k": "", "keyed k": "by its alias", "inline k": "inline", "inline also": "more", "wrong k": "base", "nothing k": "own",
	} {
		if got := v.field(strings.Fields(path)...).text(); got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
	if len(set.Findings) > 0 {
		t.Error(texts(set))
	}
}

func TestScalars(t *testing.T) {
	tests := []struct {
		in             string
		text           string
		isText, isTrue bool
		isBool         bool
	}{
		{in: "x", text: "x", isText: true},
		{in: `"yes"`, text: "yes", isText: true},
		{in: "'5'", text: "5", isText: true},
		{in: "!!str 5", text: "5", isText: true},
		{in: "2001-01-01", text: "2001-01-01", isText: true},
		{in: "50Mi", text: "50Mi", isText: true},
		{in: "", isText: true, isBool: true}, // absent
		{in: "~", isText: true, isBool: true},
		{in: "5"},
		{in: "1.5"},
		{in: "0x10"},
		{in: "[a]"},
		{in: "{a: b}"},
		{in: "true", isTrue: true, isBool: true},
		{in: "Yes", isTrue: true, isBool: true},
		{in: "y", isTrue: true, isBool: true},
		{in: "ON", isTrue: true, isBool: true},
		{in: "false", isBool: true},
		{in: "no", isBool: true},
		{in: "n", isBool: true},
		{in: "off", isBool: true},
	}
	for _, tt := range tests {
		v, set := values(t, "v: "+tt.in+"\nw: 1\n")
		if got := v.field("v").text(); got != tt.text || (len(set.Findings) == 0) != tt.isText {
			t.Errorf("text of %s: %q, %q", tt.in, got, texts(set))
		}
		v, set = values(t, "v: "+tt.in+"\nw: 1\n")
		if got := v.field("v").isTrue(); got != tt.isTrue || (len(set.Findings) == 0) != tt.isBool {
			t.Errorf("boolean of %s: %v, %q", tt.in, got, texts(set))
		}
	}
}

func TestItems(t *testing.T) {
	v, set := values(t, "list: [a, ~, &x b, *x]\nnone: ~\nwrong: {a: b}\n")
	var got []string
	for item := range v.field("list").items() {
		got = append(got, item.path.String()+" "+item.text())
	}
	for _, name := range []string{"none", "absent", "wrong"} {
		for range v.field(name).items() {
			t.Errorf("%s has items", name)
		}
	}
	if d := cmp.Diff([]string{"list[0] a", "list[1] ", "list[2] b", "list[3] b"}, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	if d := cmp.Diff([]string{"in:3: wrong: not a list"}, texts(set)); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	v, _ = values(t, "[a, [b]]\n")
	for item := range v.items() { // of a list that is a document
		if got := item.path.String(); !strings.HasPrefix(got, "[") || item.node.Line != 1 {
			t.Errorf("%q in line %d", got, item.node.Line)
		}
	}
}

// TestVisits checks that too many visits are reported once, and that nothing is read then.
func TestVisits(t *testing.T) {
	v, set := values(t, "a: {b: x}\n")
	v.doc.visits = 3
	for range 5 {
		_ = v.field("a", "b").text()
	}
	if got := v.field("a", "b").text(); got != "" || v.doc.visits != -1 {
		t.Errorf("%q, %d visits", got, v.doc.visits)
	}
	if d := cmp.Diff([]string{"in: aliases repeat more content than is read"}, texts(set)); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

// TestMergeDepth verifies that merges are followed to a bounded depth, also through a mapping that merges
// itself.
func TestMergeDepth(t *testing.T) {
	var in strings.Builder
	in.WriteString("m0: &m0 {k0: x}\n")
	for i := 1; i <= maxMerges+1; i++ {
		fmt.Fprintf(&in, "m%d: &m%d {<<: *m%d, k%d: x}\n", i, i, i-1, i)
	}
	v, set := values(t, in.String()+"self: &s {<<: *s, k: x}\n")
	last := v.field(fmt.Sprintf("m%d", maxMerges+1))
	if got := len(last.pairs()); got != maxMerges+1 { // all but k0
		t.Errorf("%d fields", got)
	}
	if got := v.field("self", "k").text(); got != "x" || len(set.Findings) > 0 {
		t.Errorf("%q, %q", got, texts(set))
	}
}

func TestTemplates(t *testing.T) {
	tests := []struct {
		name, in string
		want     []string // paths
	}{
		{name: "none", in: "spec: {replicas: 1}"},
		{name: "one", in: "spec: {template: {spec: {containers: []}}}", want: []string{"spec.template"}},
		{name: "several", in: "spec: {a: {spec: {containers: []}}, b: [{spec: {containers: []}}, {x: {spec: {containers: []}}}]}", want: []string{"spec.a", "spec.b[0]", "spec.b[1].x"}},
		{name: "none within another", in: "t: {spec: {containers: [{spec: {containers: []}}]}}", want: []string{"t"}},
		{name: "a schema", in: "spec: {versions: [{schema: {properties: {spec: {containers: {type: array}}}}}]}"},
		{name: "aliases are not followed", in: "a: &a {spec: {containers: []}}\nb: *a\nc: [*a]", want: []string{"a"}},
		{name: "a list of fields", in: "a: {spec: [containers, [x]]}\nspec: [containers, [x]]"},
		{
			name: "as deep as it is searched", in: strings.Repeat("{a: ", maxSearch) + "{spec: {containers: []}}" + strings.Repeat("}", maxSearch),
			want: []string{strings.TrimSuffix(strings.Repeat("a.", maxSearch), ".")},
		},
		{name: "too deep", in: strings.Repeat("{a: ", maxSearch+1) + "{spec: {containers: []}}" + strings.Repeat("}", maxSearch+1)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			v, _ := values(t, tt.in+"\n")
			var got []string
			for _, found := range v.templates(0) {
				got = append(got, found.path.String())
			}
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Errorf("-want +got:\n%s", d)
			}
		})
	}
}

func TestTemplatePath(t *testing.T) {
	tests := []struct {
		apiVersion, kind, want string
		known                  bool
	}{
		{"v1", "Pod", "", true},
		{"", "Pod", "", true},
		{"v1", "PodTemplate", "template", true},
		{"apps/v1", "StatefulSet", "spec.template", true},
		{"extensions/v1beta1", "DaemonSet", "spec.template", true},
		{"batch/v1", "CronJob", "spec.jobTemplate.spec.template", true},
		{"batch.volcano.sh/v1alpha1", "Job", "", false},
		{"apps.openshift.io/v1", "DeploymentConfig", "", false},
		{"v1", "Service", "", false},
	}
	for _, tt := range tests {
		path, known := templatePath(tt.apiVersion, tt.kind)
		if got := strings.Join(path, "."); got != tt.want || known != tt.known {
			t.Errorf("%s %s: %q, %v", tt.apiVersion, tt.kind, got, known)
		}
		if isList(tt.apiVersion, tt.kind) || isList(tt.apiVersion, tt.kind+"List") != tt.known {
			t.Errorf("%s %sList: taken for a list: %v", tt.apiVersion, tt.kind, !tt.known)
		}
	}
}

func TestJoined(t *testing.T) {
	for want, path := range map[string][]string{
		"": nil, "a": {"a"}, "a.b[0][1].c": {"a", "b", "[0]", "[1]", "c"}, "[0].a": {"[0]", "a"},
	} {
		if got := joined(path); got != want {
			t.Errorf("%v: %q, want %q", path, got, want)
		}
	}
}
