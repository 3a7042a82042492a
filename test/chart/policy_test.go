package chart

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/policy"
)

const header = "apiVersion: blkio.noderesource.dev/v1alpha1\nkind: NodePolicy\n"

// observe are values with a policy in mode observe.
const observe = "policyFile: 'apiVersion: blkio.noderesource.dev/v1alpha1\n\n  kind: NodePolicy\n\n  mode: observe'\n"

// policyValues returns values with a node policy.
func policyValues(text string) string { return fmt.Sprintf("policyFile: %q\n", text) }

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

// TestPolicies verifies that each valid node policy is accepted, and that the ConfigMap has just that text.
func TestPolicies(t *testing.T) {
	all := policies(t)
	entries := header + "classes:\n"
	for i, entry := range []string{
		"* wbps=20Mi wiops=500", " rootfs\trbps=1e9  riops=+8", `"/a b" wbps=1.5Mi`, "/data wbps=max", "@data rbps=128.Ki", "* riops=2k;", "disk:nvme* wbps=.5Gi",
		"* wbps=1E6", "* wbps=1E",
	} {
		entries += fmt.Sprintf("  a%d: {limits: [%q]}\n", i, entry)
	}
	all["entries"] = "---\n" + entries + "floors: {bps: 12345, iops: 8}\n"
	c := open(t)
	for name, text := range all {
		if _, err := policy.ParseFile([]byte(text)); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		file := filepath.Join(t.TempDir(), "policy.yaml")
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		files, err := c.Template(t.Context(), Render{Values: image, Args: []string{"--set-file", "policyFile=" + file}})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got, err := Policy(files["templates/policy.yaml"])
		if d := cmp.Diff(text, got); err != nil || d != "" {
			t.Errorf("%s: %v, -want +got\n%s", name, err, d)
		}
	}
}

// TestPolicyErrors verifies that the chart refuses policies that the plugin would refuse, and names the field.
func TestPolicyErrors(t *testing.T) {
	c := open(t)
	for text, want := range map[string]string{
		"mode: enforce\n":                          "policyFile: apiVersion: required",
		"apiVersion: v1\nkind: NodePolicy\n":       `policyFile: apiVersion: invalid value "v1": must be blkio.noderesource.dev/v1alpha1`,
		"[a]":                                      "policyFile: error",
		"a: [":                                     "policyFile: error",
		header + "mode: off\n":                     "policyFile: mode: invalid value false: must be enforce or observe",
		header + "mod: enforce\n":                  "policyFile: mod: unknown field",
		header + "classes:\n":                      "policyFile: classes: invalid value null: must be of type object",
		header + "classes: {a: {weight: 0}}":       "policyFile: classes.a.weight: invalid value 0: must be from 1 to 10000",
		header + "classes: {a: {weight: 1.5}}":     "policyFile: classes.a.weight: invalid value 1.5: must be of type integer",
		header + "classes: {a: {limits: '* a=1'}}": "policyFile: classes.a.limits: invalid value",
		header + "classes: {bronze: {limits: ['* riops=8', '* wbps=banana wiops=500']}}": `policyFile: classes.bronze.limits[1]: invalid value "* wbps=banana wiops=500": must be a target with limits such as "* wbps=20Mi wiops=500"`,
		header + "budgets: [{namespaces: [a], limits: ['wbps=1Mi']}]":                    "policyFile: budgets[0].limits[0]: invalid value",
		header + "budgets: [{namespaces: [a], weight: 0}]":                               "policyFile: budgets[0].weight: invalid value 0: must be from 1 to 10000",
		header + "classes: {a: {guarantee: 30}}":                                         "policyFile: classes.a.guarantee: invalid value 30",
		header + "budgets: [{namespaces: [a], guarantee: 30}]":                           "policyFile: budgets[0].guarantee: invalid value 30",
		header + "bounds: {max: ['* wbps']}":                                             "policyFile: bounds.max[0]: invalid value",
		header + "floors: {bps: 64KB}":                                                   `policyFile: floors.bps: invalid value "64KB": must be a quantity such as 64Ki`,
		header + "rules: [{class: a}]":                                                   "policyFile: rules[0].name: required",
		header + "rules: [{name: a, class: bronz}]\nclasses: {bronze: {weight: 1}}":      `policyFile: rules[0].class: unknown class "bronz"`,
	} {
		if _, err := policy.ParseFile([]byte(text)); err == nil {
			t.Errorf("%s: the plugin accepts it", text)
		}
		if _, err := c.Template(t.Context(), Render{Values: image + policyValues(text)}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	pool := "nodePools: {label: a, policyFiles: {fast: 'kind: NodePolicy'}}\n"
	if _, err := c.Template(t.Context(), Render{Values: image + pool}); err == nil || !strings.Contains(err.Error(), "nodePools.policyFiles.fast: apiVersion: required") {
		t.Errorf("the policy of a pool: %v", err)
	}
}

// TestPolicyPasses verifies that the chart takes these invalid policies, which change-the-policy.md lists, and that the plugin does not.
func TestPolicyPasses(t *testing.T) {
	c := open(t)
	for _, text := range []string{
		"floors: {bps: 1Mi}\nclasses: {a: {limits: ['* wbps=64Ki']}}", "bounds: {min: ['* wbps=2Mi'], max: ['* wbps=1Mi']}", "floors: {bps: 1}",
		"classes: {a: {limits: ['* wbps=99999999999999999999']}}", "classes: {a: {limits: ['* wbps=1Mi', '* riops=8']}}", "classes: {a: {limits: ['* wbps=1Mi wbps=2Mi']}}",
		"rules: [{name: a}, {name: a}]", "classes: {a: {weight: 5}}\nclasses: {b: {weight: 5}}", "classes: {A: {weight: 5}}", "rules: [{name: a b}]",
		"rules: [{name: a, match: {namespaces: [A_b]}}]", "rules: [{name: a, match: {podSelector: {matchLabels: {'a b': c}}}}]", "disks: [{match: {names: ['[a']}}]",
		"classes: {a: {}}", "budgets: [{namespaces: [a]}]", "budgets: [{namespaces: [a], limits: ['/data wbps=1Mi']}]", "bounds: {min: ['/data wbps=2Mi']}",
		"disks: [{model: {rbps: 1Mi}}]", "disks: [{qos: {rpct: 95}}]", "reserve: {system: 95%}", "budgets: [{namespaces: ['a*'], guarantee: 95%}]", "writeback: {dirtyGuard: 1}",
	} {
		if _, err := policy.ParseFile([]byte(header + text)); err == nil {
			t.Errorf("%s: the plugin accepts it", text)
		}
		if _, err := c.Template(t.Context(), Render{Values: image + policyValues(header+text)}); err != nil {
			t.Errorf("%s: the chart does not let it pass: %v", text, err)
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

// TestPolicyFields verifies that the schema of the chart has each field of the reference, which is made from the policy's types.
func TestPolicyFields(t *testing.T) {
	page, err := os.ReadFile("../../docs/reference/policy.md")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(deploy, Dir, "files/policy.schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	type node struct {
		Ref                  string `json:"$ref"`
		Properties           map[string]*node
		Items                *node
		AdditionalProperties json.RawMessage  // a schema, or false
		Defs                 map[string]*node `json:"$defs"`
	}
	var schema node
	if err := json.Unmarshal(text, &schema); err != nil {
		t.Fatal(err)
	}
	objects := map[string]string{"match": "rules[].match.podSelector.", "max": "bounds.", "min": "bounds.", "weig": "bounds."}
	fields := regexp.MustCompile("(?m)^\\| `([a-zA-Z][^`]*)` \\|").FindAllStringSubmatch(string(page), -1)
	for _, m := range fields {
		at, prefix := &schema, regexp.MustCompile(`^(match|max|min|weig)`).FindString(m[1])
		for name := range strings.SplitSeq(objects[prefix]+m[1], ".") {
			name, isList := strings.CutSuffix(name, "[]")
			next := at.Properties[name]
			if name == "NAME" {
				next = new(node)
				if err := json.Unmarshal(at.AdditionalProperties, next); err != nil {
					t.Fatal(err)
				}
			}
			if next != nil && next.Ref != "" {
				next = schema.Defs[strings.TrimPrefix(next.Ref, "#/$defs/")]
			}
			if next != nil && isList {
				next = next.Items
			}
			if at = next; at == nil {
				t.Errorf("the schema has no %s", m[1])
				break
			}
		}
	}
	if len(fields) < 60 {
		t.Errorf("only %d fields", len(fields))
	}
}
