package apiserver

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestManifests verifies that the API server admits the objects on the pages of the documentation, and those of
// deploy/, and knows all their fields.
func TestManifests(t *testing.T) {
	c := cluster{t}
	admits := func(name, manifest string, args ...string) {
		if out, err := kubectl(manifest, append(args, "apply", "--dry-run=server", "--validate=strict", "-f", "-")...); err != nil {
			c.Errorf("%s: %v: %s\n%s", name, err, out, manifest)
		}
	}
	objects := pageObjects(t)
	for name, manifest := range objects {
		for _, ns := range regexp.MustCompile(`\bnamespace: ([a-z0-9-]+)`).FindAllStringSubmatch(manifest, -1) {
			c.kubectl(fmt.Sprintf("{apiVersion: v1, kind: Namespace, metadata: {name: %s}}", ns[1]), "apply", "-f", "-")
		}
		admits(name, manifest)
	}
	if len(objects) < 4 {
		c.Errorf("only %d objects are on the pages", len(objects))
	}
	c.kubectl(readFile(t, deploy, "kubernetes/namespace.yaml"), "apply", "-f", "-")
	for _, profile := range []string{"kubernetes", "kubernetes-hostile-tenants"} {
		admits(profile, c.kubectl("", "kustomize", filepath.Join(deploy, profile)))
	}
	admits("with the optional parts", c.kubectl("", "kustomize", withOptionalParts(t)))
}

// withOptionalParts returns a copy of deploy/kubernetes whose kustomization has all parts.
func withOptionalParts(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(deploy)); err != nil {
		t.Fatal(err)
	}
	dir = filepath.Join(dir, "kubernetes")
	text := readFile(t, dir, "kustomization.yaml")
	all := strings.ReplaceAll(text, "\n  # - ", "\n  - ")
	if strings.Count(all, "\n  - ") != strings.Count(text, "\n  - ")+3 {
		t.Errorf("not three parts are optional:\n%s", text)
	}
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(all), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// pageObjects returns the Kubernetes objects in the YAML blocks of the pages, by page and line.
// A NodePolicy is a file of the node's, and some blocks are parts of an object.
func pageObjects(t *testing.T) map[string]string {
	t.Helper()
	block := regexp.MustCompile("(?ms)^```yaml\n(.*?)^```$")
	objects := map[string]string{}
	read := func(file string, e fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(file) != ".md" {
			return err
		}
		page := readFile(t, file)
		for _, at := range block.FindAllStringSubmatchIndex(page, -1) {
			text := page[at[2]:at[3]]
			if strings.Contains(text, "\nkind:") && !strings.Contains(text, "kind: NodePolicy") {
				objects[fmt.Sprintf("%s:%d", file, 1+strings.Count(page[:at[0]], "\n"))] = text
			}
		}
		return nil
	}
	for _, from := range []string{"../../docs", "../../README.md"} {
		if err := filepath.WalkDir(from, read); err != nil {
			t.Fatal(err)
		}
	}
	return objects
}
