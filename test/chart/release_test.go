package chart

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestRelease verifies that the package of a release installs the image of its release without any values, and that it is the
// same each time. It has the version in Chart.yaml, which is that of the changelog.
func TestRelease(t *testing.T) {
	c := open(t)
	const digest = "sha256:41cdb9218eb67421aaa65ab7d32cc0277379ad7155a1b878276c71451f79d0f0"
	r := Release{Version: version(t), Repository: "registry.example/nri-blkio", Digest: digest, Time: time.Unix(1700000000, 0)}
	var packages [2][]byte
	for i := range packages {
		r.Dir = t.TempDir()
		file, err := c.Package(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		if packages[i], err = os.ReadFile(file); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(packages[0], packages[1]) {
		t.Error("two packages differ")
	}
	file := filepath.Join(r.Dir, "nri-blkio-"+r.Version+".tgz")
	about, err := c.Helm(t.Context(), "", "show", "chart", file)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"appVersion: " + r.Version, "version: " + r.Version} {
		if !strings.Contains("\n"+about, "\n"+line+"\n") {
			t.Errorf("the package has no %q:\n%s", line, about)
		}
	}
	rendered, err := c.Helm(t.Context(), "", "template", "nri-blkio", file, "--namespace", "nri-blkio")
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(rendered, "image: registry.example/nri-blkio@"+digest); n < 2 {
		t.Errorf("the image is there %d times:\n%s", n, rendered)
	}
}

// version returns the version of Chart.yaml, and verifies that the changelog begins with it.
func version(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(deploy, Dir, "Chart.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "\nversion: ")
	version, _, _ := strings.Cut(rest, "\n")
	changes, err := os.ReadFile(filepath.Join(deploy, "../CHANGELOG.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, first, _ := strings.Cut(string(changes), "\n## ")
	if got, _, _ := strings.Cut(first, " "); got != version {
		t.Errorf("the first release in the changelog is %q, and that of the chart %q", got, version)
	}
	return version
}
