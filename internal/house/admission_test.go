package house

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// TestAdmissionPolicies verifies that the policies of deploy/kubernetes are YAML and name the plugin's
// annotations. TestReservedAnnotations in test/apiserver tries them in an API server.
func TestAdmissionPolicies(t *testing.T) {
	reserve := readPolicy(t, "admission.yaml", "ValidatingAdmissionPolicy")
	pattern := regexp.MustCompile(`key\.matches\('([^']+)'\)`).FindStringSubmatch(reserve)
	if pattern == nil {
		t.Fatal("no pattern for keys")
	}
	reserved := regexp.MustCompile(pattern[1]) // CEL and Go have the syntax of RE2
	own := []string{"required-plugins.noderesource.dev", "tolerate-missing-plugins.noderesource.dev", annotation.Domain + "/pod-total"}
	for _, kind := range annotation.Kinds() {
		own = append(own, kind+"."+annotation.Domain, kind+"."+annotation.Domain+"/containers")
	}
	for _, key := range own {
		if !reserved.MatchString(key) {
			t.Errorf("%s is not reserved", key)
		}
	}
	for _, key := range []string{"devices.noderesource.dev/container.a", "example.com/blkio", "pod-io-limit"} {
		if reserved.MatchString(key) {
			t.Errorf("%s is reserved", key)
		}
	}
	const total = "limits." + annotation.Domain + "/pod-total"
	if set := readPolicy(t, "admission-set.yaml", "MutatingAdmissionPolicy"); !strings.Contains(reserve, total) || !strings.Contains(set, total) {
		t.Errorf("not both policies name %s", total)
	}
	if r := annotation.Parse(map[string]string{total: "* wbps=50Mi"}); r.Total() == nil || len(r.PodWide())+len(r.Total().Errors()) > 0 {
		t.Errorf("%s is not an annotation of the plugin", total)
	}
}

// readPolicy returns a file of deploy/kubernetes with a policy of this kind and its binding.
func readPolicy(t *testing.T, name, kind string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "deploy/kubernetes", name))
	if err != nil {
		t.Fatal(err)
	}
	type object struct{ Kind string }
	var policy, binding object
	documents := yaml.NewDecoder(strings.NewReader(string(text)))
	for _, into := range []*object{&policy, &binding} {
		if err := documents.Decode(into); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	if policy.Kind != kind || binding.Kind != kind+"Binding" {
		t.Errorf("%s: a %s and a %s", name, policy.Kind, binding.Kind)
	}
	return string(text)
}
