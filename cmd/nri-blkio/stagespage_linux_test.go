package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/nri-blkio/nri-blkio/policy"
)

// TestStagesPage verifies that the policies of docs/how-to/enable-in-stages.md decide about the pods of the page as
// it says, and that its edits of files have their effect. TestStages of test/e2e runs the page on a node.
func TestStagesPage(t *testing.T) {
	data, err := os.ReadFile("../../docs/how-to/enable-in-stages.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(data)
	policies := regexp.MustCompile("(?ms)^```yaml\n(.*?)^```$").FindAllStringSubmatch(page, -1)
	edits := regexp.MustCompile(`(?m)^    (sed -i .*)$`).FindAllStringSubmatch(page, -1)
	refusal := regexp.MustCompile(`(?m)^    team-b/import .* error: (nri-blkio: .*)$`).FindStringSubmatch(page)
	if len(policies) != 3 || len(edits) != 2 || refusal == nil {
		t.Fatalf("the page has %d policies, %d edits and the error %q", len(policies), len(edits), refusal)
	}
	daemonset, err := os.ReadFile("../../deploy/kubernetes/daemonset.yaml")
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	file := filepath.Join("deploy", "kubernetes", "policy.yaml")
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	stages := []struct{ a, b, ruleOfA string }{{"observe", "observe", "teams"}, {"enforce", "observe", "first"}, {"enforce", "enforce", "teams"}}
	for i, s := range stages {
		decides(t, policies[i][1], strings.NewReplacer("RULE", s.ruleOfA, "MODEA", s.a, "MODEB", s.b, "REFUSAL", refusal[1]).Replace(`apiVersion: blkio.noderesource.dev/v1alpha1
kind: NodePolicyTest
cases:
- {name: web, pod: {namespace: team-a}, expect: {rule: RULE, mode: MODEA, eachContainer: {class: bronze, refused: false, limits: [{target: "*", wbps: 20Mi}]}}}
- name: db
  pod: {namespace: team-b, annotations: {limits.blkio.noderesource.dev/containers: "* wbps=50Mi"}}
  expect: {rule: teams, mode: MODEB, eachContainer: {refused: false, limits: [{target: "*", wbps: 50Mi, from: "limits/containers #1"}]}}
- name: import
  pod: {namespace: team-b, annotations: {limits.blkio.noderesource.dev/containers: "* wbps=500Mi"}}
  expect: {mode: MODEB, eachContainer: {refused: 'REFUSAL'}}
`))
		// One edit goes back from each stage.
		back := edited(t, edits[1][1], file, policies[i][1])
		if p, err := policy.ParseFile([]byte(back)); err != nil || p.Enforces() {
			t.Errorf("after going back from stage %d the policy enforces, or is invalid: %v\n%s", i+1, err, back)
		}
	}
	const metrics = "\n            - --metrics-address=127.0.0.1:9467\n"
	if text := edited(t, edits[0][1], "deploy/kubernetes/daemonset.yaml", string(daemonset)); !strings.Contains(text, metrics) {
		t.Errorf("after %s the manifest has no line %q", edits[0][1], metrics)
	}
}

// decides compares the decisions under a policy with those that a file of cases expects.
func decides(t *testing.T, pol, cases string) {
	t.Helper()
	for name, text := range map[string]string{"policy.yaml": pol, "cases.yaml": cases} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var out strings.Builder
	a := &app{stdin: strings.NewReader(""), stdout: &out, stderr: &out, getenv: os.Getenv}
	if err := a.run(t.Context(), []string{"check", "--policy", "policy.yaml", "--expect", "cases.yaml"}); err != nil {
		t.Errorf("%v\n%s", err, out.String())
	}
}

// edited returns a file after a command has edited it.
func edited(t *testing.T, command, file, before string) string {
	t.Helper()
	if err := os.WriteFile(file, []byte(before), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "sh", "-c", command).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", command, err, out)
	}
	after, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(after)
}
