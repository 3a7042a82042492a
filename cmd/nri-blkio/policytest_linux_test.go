package main

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestPolicyTestPage follows docs/how-to/test-a-policy.md, with its files, and compares the output and the difference with
// those on the page.
func TestPolicyTestPage(t *testing.T) {
	data, err := os.ReadFile("../../docs/how-to/test-a-policy.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(data)
	t.Chdir(t.TempDir())
	files := map[string]string{}
	for _, m := range regexp.MustCompile("(?ms)`([a-z-]+\\.yaml)`[^`]*:\n\n```yaml\n(.*?)^```$").FindAllStringSubmatch(page, -1) {
		files[m[1]] = m[2]
		if err := os.WriteFile(m[1], []byte(m[2]), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if len(files) != 2 {
		t.Fatalf("%d files on the page", len(files))
	}
	before := checked(t, "policy.yaml", "pods.yaml")
	indented := ""
	for line := range strings.Lines(before) {
		indented += strings.TrimRight("    "+line, " \n") + "\n"
	}
	if !strings.Contains(page, "\n"+indented) {
		t.Errorf("the page does not have this output:\n%s", indented)
	}
	changed := strings.Replace(files["policy.yaml"], "wbps=20Mi", "wbps=10Mi", 1)
	if err := os.WriteFile("policy.yaml", []byte(changed), 0o600); err != nil {
		t.Fatal(err)
	}
	after := checked(t, "policy.yaml", "pods.yaml")
	lines := regexp.MustCompile(`(?m)^    ([-+])(.*)$`).FindAllStringSubmatch(page, -1)
	for _, m := range lines {
		if in := map[string]string{"-": before, "+": after}[m[1]]; !strings.Contains(in, m[2]+"\n") || strings.Contains(before, m[2]) == strings.Contains(after, m[2]) {
			t.Errorf("not in the difference: %s", m[0])
		}
	}
	if len(lines) == 0 {
		t.Error("the page has no difference")
	}
}

// checked returns what check prints about a file of pods by a policy, without a node.
func checked(t *testing.T, policy, pods string) string {
	t.Helper()
	var out, notes strings.Builder
	a := &app{stdin: strings.NewReader(""), stdout: &out, stderr: &notes, getenv: os.Getenv}
	if got := statusOf(a.run(t.Context(), []string{"check", "--offline", "--policy", policy, "-f", pods})); got > exitFindings {
		t.Errorf("exit status %d: %s", got, notes.String())
	}
	return out.String()
}

// decisions returns what checked returns about each of these pods, by its name. Each pod is the text of its namespace and
// other metadata, by the name, and has the container main with these resources.
func decisions(t *testing.T, policy string, pods map[string]string) map[string]string {
	t.Helper()
	manifests := ""
	for name, metadata := range pods {
		resources := "{limits: {memory: 1Gi}}"
		if strings.HasPrefix(name, "guaranteed") {
			resources = "{limits: {memory: 1Gi, cpu: 1}}"
		}
		manifests += "---\napiVersion: v1\nkind: Pod\nmetadata: {name: " + name + ", " + metadata + "}\nspec: {containers: [{name: main, image: x, resources: " + resources + "}]}\n"
	}
	for name, text := range map[string]string{"policy.yaml": policy, "pods.yaml": manifests} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	out := map[string]string{}
	for text := range strings.SplitSeq(checked(t, "policy.yaml", "pods.yaml"), "\n\n") {
		head, _, _ := strings.Cut(strings.TrimPrefix(text, "Pod "), "\n")
		_, name, _ := strings.Cut(strings.Fields(head)[0], "/")
		out[name] = text + "\n"
	}
	return out
}

// wantTexts compares the decision about a pod with texts that it has, and with those after a "!" that it does not have.
func wantTexts(t *testing.T, name, decision string, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if text, not := strings.CutPrefix(text, "!"); strings.Contains(decision, text) == not {
			t.Errorf("%s: %q is there: %t\n%s", name, text, not, decision)
		}
	}
}

// TestPolicyPage verifies that the example of classes and rules in docs/reference/policy.md has the effect that
// the page describes.
func TestPolicyPage(t *testing.T) {
	data, err := os.ReadFile("../../docs/reference/policy.md")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile("(?ms)^## Classes and rules$.*?^```yaml\n(.*?)^```$").FindStringSubmatch(string(data))
	if m == nil {
		t.Fatal("the page has no classes and rules")
	}
	t.Chdir(t.TempDir())
	const choice = ", annotations: {class.blkio.noderesource.dev/containers: "
	got := decisions(t, m[1], map[string]string{
		"system": "namespace: kube-system", "databases": "namespace: databases", "other": "namespace: web",
		"batch": "namespace: batch-1, labels: {tier: batch}", "guaranteed": "namespace: batch-1, labels: {tier: batch}",
		"bronze": "namespace: web" + choice + "bronze}", "gold": "namespace: web" + choice + "gold}",
	})
	for name, texts := range map[string][]string{
		"system":     {"(rule system)\nnothing to limit\n"},
		"databases":  {"(rule databases)\n", " weight 800 ", "rule databases, class gold\n"},
		"batch":      {"(rule batch)\n", "rule batch, class bronze\n", "has mode observe for this pod (rule batch)\n"},
		"guaranteed": {"!(rule ", "\nnothing to limit\n"},
		"other":      {"!(rule ", "\nnothing to limit\n"},
		"bronze":     {"!error: ", " class bronze\n"},
		"gold":       {"error: ", "bounds.weight.max", "effect: container main is not created\n"},
	} {
		wantTexts(t, name, got[name], texts...)
	}
}
