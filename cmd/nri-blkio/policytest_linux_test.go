package main

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestPolicyTestPage follows docs/how-to/test-a-policy.md, with its files, and compares the output with that on
// the page.
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
	if len(files) != 3 {
		t.Fatalf("%d files on the page", len(files))
	}
	run := func(want exitStatus) {
		t.Helper()
		var out strings.Builder
		a := &app{stdin: strings.NewReader(""), stdout: &out, stderr: &out, getenv: os.Getenv}
		if got := statusOf(a.run(t.Context(), []string{"check", "--policy", "policy.yaml", "--expect", "policy-test.yaml"})); got != want {
			t.Errorf("exit status %d, want %d", got, want)
		}
		indented := ""
		for line := range strings.Lines(out.String()) {
			indented += "    " + line
		}
		if !strings.Contains(page, "\n"+indented) {
			t.Errorf("the page does not have this output:\n%s", indented)
		}
	}
	run(0)
	changed := strings.Replace(files["policy.yaml"], "wbps=20Mi", "wbps=10Mi", 1)
	if err := os.WriteFile("policy.yaml", []byte(changed), 0o600); err != nil {
		t.Fatal(err)
	}
	run(exitFindings)
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
	const choice = "annotations: {class.blkio.noderesource.dev/containers: "
	const cases = `apiVersion: blkio.noderesource.dev/v1alpha1
kind: NodePolicyTest
cases:
- {name: system, pod: {namespace: kube-system}, expect: {rule: system, eachContainer: {class: none, limits: []}}}
- {name: databases, pod: {namespace: databases}, expect: {rule: databases, eachContainer: {class: gold, weight: 800}}}
- {name: batch, pod: {namespace: batch-1, labels: {tier: batch}}, expect: {rule: batch, mode: observe, eachContainer: {class: bronze}}}
- {name: guaranteed, pod: {namespace: batch-1, labels: {tier: batch}, qosClass: Guaranteed}, expect: {rule: none}}
- {name: other, pod: {namespace: web}, expect: {rule: none, eachContainer: {class: none}}}
- {name: bronze, pod: {namespace: web, ` + choice + `bronze}}, expect: {eachContainer: {class: bronze, refused: false}}}
- {name: gold, pod: {namespace: web, ` + choice + `gold}}, expect: {eachContainer: {refused: bounds.weight.max}}}
`
	t.Chdir(t.TempDir())
	for name, text := range map[string]string{"policy.yaml": m[1], "cases.yaml": cases} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var out strings.Builder
	a := &app{stdin: strings.NewReader(""), stdout: &out, stderr: &out, getenv: os.Getenv}
	if err := a.run(t.Context(), []string{"check", "--policy", "policy.yaml", "--expect", "cases.yaml"}); err != nil || out.String() != "ok: 7 cases\n" {
		t.Errorf("%v\n%s", err, out.String())
	}
}

// TestMigratePage converts the classes of docs/how-to/migrate-from-blockio.md, and compares the policy
// with that on the page.
func TestMigratePage(t *testing.T) {
	data, err := os.ReadFile("../../docs/how-to/migrate-from-blockio.md")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile("(?ms)^    (Classes:\n.*?)\n\nthe command .*?^```yaml\n(.*?)^```$").FindStringSubmatch(string(data))
	if m == nil {
		t.Fatal("the page has no classes with a policy")
	}
	t.Chdir(t.TempDir())
	if err := os.WriteFile("blockio.yaml", []byte(strings.ReplaceAll(m[1], "\n    ", "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var out, notes strings.Builder
	a := &app{stdin: strings.NewReader(""), stdout: &out, stderr: &notes, getenv: os.Getenv}
	if got := statusOf(a.run(t.Context(), []string{"check", "--migrate", "blockio.yaml"})); got != exitFindings || out.String() != m[2] {
		t.Errorf("exit status %d, want %d; policy:\n%s%s", got, exitFindings, out.String(), notes.String())
	}
}
