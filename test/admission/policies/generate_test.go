package policies

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// dirs returns the directories of the files: for kubectl, and for Helm, which reads no file outside of its chart.
func dirs() []string {
	return []string{"../../../deploy/admission", "../../../deploy/helm/nri-blkio/files/admission"}
}

// TestFiles verifies that deploy/admission and the chart have what the tables of the grammar give.
func TestFiles(t *testing.T) {
	files, err := Files()
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range dirs() {
		for name, want := range files {
			path := filepath.Join(dir, name)
			if os.Getenv("UPDATE_ADMISSION") != "" {
				if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			got, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(got), want); diff != "" {
				t.Errorf("%s differs from the tables; run make generate: -file +tables:\n%s", path, diff)
			}
		}
	}
}

// mustFiles returns the generated files.
func mustFiles(t *testing.T) map[string]string {
	t.Helper()
	files, err := Files()
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// TestSameFiles verifies that the files are the same each time, and have the names that callers know.
func TestSameFiles(t *testing.T) {
	first := mustFiles(t)
	if got := slices.Sorted(maps.Keys(first)); !slices.Equal(got, []string{FailClosedFile, GrammarFile, TenantsFile}) {
		t.Errorf("%q", got)
	}
	for range 5 {
		if d := cmp.Diff(first, mustFiles(t)); d != "" {
			t.Fatalf("another time:\n%s", d)
		}
	}
}

// TestText verifies that the files are printable ASCII, and nothing of a template is left in them. A template
// prints "<no value>" for a misspelled name.
func TestText(t *testing.T) {
	for name, text := range mustFiles(t) {
		for i, line := range strings.Split(text, "\n") {
			if strings.ContainsFunc(line, func(r rune) bool { return r < ' ' || r > '~' }) || strings.HasSuffix(line, " ") || strings.Contains(line, "<no value>") || strings.Contains(line, "{{") || strings.Contains(line, "%!") {
				t.Errorf("%s:%d: %q", name, i+1, line)
			}
		}
		if !strings.HasPrefix(text, "# Generated from the tables of policy/annotation.") || !strings.HasSuffix(text, "\n") || strings.HasSuffix(text, "\n\n") {
			t.Errorf("%s: %.100q", name, text)
		}
	}
	var used strings.Builder
	for _, name := range []string{"common", "claims", GrammarFile, TenantsFile, FailClosedFile} {
		text, err := templates.ReadFile("templates/" + name + ".tmpl")
		if err != nil {
			t.Fatal(err)
		}
		used.Write(text)
	}
	for name := range values() {
		if !regexp.MustCompile(`\.` + name + `\b`).MatchString(used.String()) {
			t.Errorf("no template uses %s", name)
		}
	}
}

// object has the fields of an admission policy, and of its binding, that TestWiring reads.
type object struct {
	Kind     string                `json:"kind"`
	Metadata struct{ Name string } `json:"metadata"`
	Spec     struct {
		PolicyName    string           `json:"policyName"`
		FailurePolicy string           `json:"failurePolicy"`
		Actions       []string         `json:"validationActions"`
		Variables     []map[string]any `json:"variables"`
		Validations   []map[string]any `json:"validations"`
		Mutations     []map[string]any `json:"mutations"`
		Resources     map[string]any   `json:"matchResources"`
	} `json:"spec"`
}

// objects returns the objects of a file.
func objects(t *testing.T, text string) (out []object) {
	t.Helper()
	for doc := range bytes.SplitSeq([]byte(text), []byte("\n---\n")) {
		var o object
		if err := yaml.Unmarshal(doc, &o); err != nil {
			t.Fatalf("%v\n%s", err, doc)
		}
		out = append(out, o)
	}
	return out
}

// TestWiring verifies that each policy has a binding of its own, and an expression uses only variables that
// stand before it. Each variable is used. The API server admits all that a policy without a binding is about.
func TestWiring(t *testing.T) {
	variable := regexp.MustCompile(`variables\.(\w+)`)
	for file, text := range mustFiles(t) {
		all := objects(t, text)
		policies := slices.DeleteFunc(slices.Clone(all), func(o object) bool { return !strings.HasSuffix(o.Kind, "AdmissionPolicy") })
		if len(all) != 2*len(policies) {
			t.Errorf("%s: %d objects for %d policies", file, len(all), len(policies))
		}
		for _, policy := range policies {
			i := slices.IndexFunc(all, func(o object) bool {
				return o.Kind == policy.Kind+"Binding" && o.Spec.PolicyName == policy.Metadata.Name && o.Metadata.Name == policy.Metadata.Name
			})
			if i < 0 {
				t.Errorf("%s: %s %s has no binding", file, policy.Kind, policy.Metadata.Name)
				continue
			}
			binding := &all[i]
			if want := map[string]string{GrammarFile: "Ignore"}[file]; want != "" && policy.Spec.FailurePolicy != want || want == "" && policy.Spec.FailurePolicy != "Fail" {
				t.Errorf("%s: failurePolicy is %s", file, policy.Spec.FailurePolicy)
			}
			actions := []string{"Deny"}
			if strings.HasSuffix(policy.Metadata.Name, "-warn") {
				actions = []string{"Warn"}
			}
			if len(policy.Spec.Validations) > 0 && !slices.Equal(binding.Spec.Actions, actions) || len(policy.Spec.Validations)+len(policy.Spec.Mutations) == 0 {
				t.Errorf("%s: %s has %d validations with the actions %q", file, policy.Metadata.Name, len(policy.Spec.Validations), binding.Spec.Actions)
			}
			known, used := map[string]bool{}, map[string]bool{}
			for _, part := range slices.Concat(policy.Spec.Variables, policy.Spec.Validations, policy.Spec.Mutations) {
				content, err := yaml.Marshal(part)
				if err != nil {
					t.Fatal(err)
				}
				for _, m := range variable.FindAllStringSubmatch(string(content), -1) {
					if used[m[1]] = true; !known[m[1]] {
						t.Errorf("%s: %v uses %s before it is set", file, part["name"], m[1])
					}
				}
				if name, ok := part["name"].(string); ok {
					known[name] = true
				}
			}
			if d := cmp.Diff(known, used); d != "" {
				t.Errorf("%s: -set +used:\n%s", file, d)
			}
		}
	}
}

// TestSelectors verifies that the labels of namespaces that the policies read are those that the documentation
// has.
func TestSelectors(t *testing.T) {
	for file, want := range map[string]string{GrammarFile: "", TenantsFile: "blkio.noderesource.dev/allow", FailClosedFile: "blkio.noderesource.dev/fail-closed"} {
		for _, o := range objects(t, mustFiles(t)[file]) {
			selector, err := yaml.Marshal(o.Spec.Resources["namespaceSelector"])
			if err != nil {
				t.Fatal(err)
			}
			if isBinding := strings.HasSuffix(o.Kind, "Binding"); isBinding && !strings.Contains(string(selector), want) || !isBinding && o.Spec.Resources != nil {
				t.Errorf("%s %s selects namespaces by %s", o.Kind, o.Metadata.Name, selector)
			}
		}
	}
	if AllowLabel != annotation.Domain+"/allow" || FailClosedLabel != annotation.Domain+"/fail-closed" {
		t.Errorf("%s, %s", AllowLabel, FailClosedLabel)
	}
}

// TestRawStrings verifies that each pattern in the files can be compiled, and none ends early at a quote in it.
func TestRawStrings(t *testing.T) {
	found := 0
	for file, text := range mustFiles(t) {
		for _, m := range regexp.MustCompile(`r'([^'\n]*)'`).FindAllStringSubmatch(text, -1) {
			found++
			if _, err := regexp.Compile(m[1]); err != nil {
				t.Errorf("%s: %v", file, err)
			}
		}
	}
	for name, value := range values() {
		if text, ok := value.(string); ok && strings.HasPrefix(text, "^") && strings.ContainsAny(text, "'\n") {
			t.Errorf("%s has a quote: %s", name, text)
		}
	}
	if found < 40 {
		t.Errorf("only %d patterns", found)
	}
}
