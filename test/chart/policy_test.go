package chart

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/nri-blkio/nri-blkio/policy"
)

// configured returns the policy in the ConfigMap that the chart renders for one.
func configured(t *testing.T, c *Chart, document map[string]any) string {
	t.Helper()
	values := map[string]any{"image": map[string]any{"repository": "a", "tag": "b"}, "policy": document}
	data, err := yaml.Marshal(values)
	if err != nil {
		t.Fatal(err)
	}
	files, err := c.Template(t.Context(), Render{Values: string(data)})
	if err != nil {
		t.Fatal(err)
	}
	text, err := Policy(files["templates/policy.yaml"])
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// policies returns the node policies on the pages of the documentation, and that of deploy/ with all that is commented
// out in it.
func policies(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	block := regexp.MustCompile("(?ms)^```yaml\n(.*?)^```$")
	err := filepath.WalkDir("../../docs", func(file string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(file) != ".md" {
			return err
		}
		page, err := os.ReadFile(file)
		for _, m := range block.FindAllStringSubmatch(string(page), -1) {
			if strings.Contains(m[1], "kind: NodePolicy\n") {
				out[file+"\n"+m[1]] = m[1]
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(deploy, "policy.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	const fields = "max|min|classes|gold|bronze|rules|name|match|mode|class|annotations|bounds|budgets|dirtyGuard|disks|weights|model|qos"
	option := regexp.MustCompile(`(?m)^( *)# (( *(- )?(` + fields + `):|- \{).*)$`)
	out["deploy/policy.yaml"] = string(text)
	out["deploy/policy.yaml, with its options"] = option.ReplaceAllString(string(text), "$1$2")
	if len(out) < 8 || out["deploy/policy.yaml, with its options"] == string(text) {
		t.Errorf("only %d policies found", len(out))
	}
	return out
}

// TestPolicies verifies that each valid node policy is a valid value, and that the ConfigMap has just that policy.
func TestPolicies(t *testing.T) {
	c := open(t)
	for name, text := range policies(t) {
		if _, err := policy.ParseFile([]byte(text)); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var want, got map[string]any
		if err := yaml.Unmarshal([]byte(text), &want); err != nil {
			t.Fatal(err)
		}
		document := map[string]any{}
		for key, value := range want {
			if key != "apiVersion" && key != "kind" {
				document[key] = value
			}
		}
		// Values are merged with the defaults, which this policy shall not have.
		for _, key := range []string{"mode", "onError", "floors"} {
			if _, ok := document[key]; !ok {
				document[key] = nil
			}
		}
		out := configured(t, c, document)
		if _, err := policy.ParseFile([]byte(out)); err != nil {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
		if err := yaml.Unmarshal([]byte(out), &got); err != nil {
			t.Fatal(err)
		}
		merged := map[string]any{"onError": map[string]any{"invalid": "reject", "unenforceable": "reject", "internal": "ignore"}, "floors": map[string]any{"bps": "64Ki", "iops": 8.0}}
		for field, defaults := range merged {
			if own, ok := want[field].(map[string]any); ok {
				for key, value := range defaults.(map[string]any) {
					if _, ok := own[key]; !ok {
						own[key] = value // Helm adds it, and it is the plugin's default as well
					}
				}
			}
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s: -want +got\n%s", name, d)
		}
	}
}

// TestDefaultPolicy verifies that the chart's policy is the plugin's built-in one.
func TestDefaultPolicy(t *testing.T) {
	text, err := Policy(render(t, "")["templates/policy.yaml"])
	if err != nil {
		t.Fatal(err)
	}
	got, err := policy.ParseFile([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if want := policy.Default(); got.Mode != want.Mode || got.OnError != want.OnError {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// TestLargeNumbers verifies that numbers of a policy are not rounded or written with an exponent.
func TestLargeNumbers(t *testing.T) {
	out := configured(t, open(t), map[string]any{"floors": map[string]any{"bps": 123456789, "iops": 10000000}})
	if !strings.Contains(out, "bps: 123456789\n") || !strings.Contains(out, "iops: 10000000\n") {
		t.Error(out)
	}
	if _, err := policy.ParseFile([]byte(out)); err != nil {
		t.Error(err)
	}
}
