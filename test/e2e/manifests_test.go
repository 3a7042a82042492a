package e2e

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// admitsManifests: the API server admits the objects on the pages of the documentation, and
// those of deploy/, without a field that it does not know.
func (c cluster) admitsManifests() {
	admits := func(name, manifest string, args ...string) {
		if out, err := kubectl(manifest, append(args, "apply", "--dry-run=server", "--validate=strict", "-f", "-")...); err != nil {
			c.Errorf("%s: %v: %s\n%s", name, err, out, manifest)
		}
	}
	objects := pageObjects(c.T)
	for name, manifest := range objects {
		admits(name, manifest)
	}
	if len(objects) < 4 {
		c.Errorf("only %d objects are on the pages", len(objects))
	}
	deploy := filepath.Join(node.payload, "deploy")
	// It goes with the cluster. cluster.apply would remove the pods of the test with it.
	c.kubectl(readManifest(c.T, filepath.Join(deploy, profileDefault, "namespace.yaml")), "apply", "-f", "-")
	for _, profile := range []string{profileDefault, profileHostile} {
		admits(profile, c.kubectl("", "kustomize", filepath.Join(deploy, profile)))
	}
	admits("validator", readManifest(c.T, filepath.Join(deploy, profileDefault, "validator.yaml")), "--namespace", "nri-blkio")
}

func readManifest(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// pageObjects returns the Kubernetes objects in the YAML blocks of the pages, by page and line.
// A NodePolicy is a file of the node's, and some blocks are parts of an object.
func pageObjects(t *testing.T) map[string]string {
	t.Helper()
	block := regexp.MustCompile("(?ms)^```yaml\n(.*?)^```$")
	objects := map[string]string{}
	err := filepath.WalkDir(filepath.Join(node.payload, "pages"), func(file string, e fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(file) != ".md" {
			return err
		}
		page := readManifest(t, file)
		for _, at := range block.FindAllStringSubmatchIndex(page, -1) {
			text := page[at[2]:at[3]]
			if strings.Contains(text, "\nkind:") && !strings.Contains(text, "kind: NodePolicy") {
				objects[fmt.Sprintf("%s:%d", file, 1+strings.Count(page[:at[0]], "\n"))] = text
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return objects
}
