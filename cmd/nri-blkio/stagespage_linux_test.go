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
	const request = ", annotations: {limits.blkio.noderesource.dev/containers: '* wbps="
	stages := []struct{ a, b, ruleOfA string }{{"observe", "observe", "teams"}, {"enforce", "observe", "first"}, {"enforce", "enforce", "teams"}}
	for i, s := range stages {
		got := decisions(t, policies[i][1], map[string]string{
			"web": "namespace: team-a", "db": "namespace: team-b" + request + "50Mi'}", "import": "namespace: team-b" + request + "500Mi'}",
		})
		observes := map[string]string{"observe": "has mode observe for this pod", "enforce": "!has mode observe"}
		wantTexts(t, "web", got["web"], "(rule "+s.ruleOfA+")\n", "wbps=20Mi ", ", class bronze\n", observes[s.a], "!error: ")
		wantTexts(t, "db", got["db"], "(rule teams)\n", "wbps=50Mi", "limits/containers #1", observes[s.b], "!error: ")
		wantTexts(t, "import", got["import"], refusal[1])
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
