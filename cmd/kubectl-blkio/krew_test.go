package main

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"text/template"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

// krewManifest is a manifest as krew reads it.
//
// Source: Plugin in krew's pkg/index/types.go, and its rules in internal/index/validation/validate.go.
type krewManifest struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name string `json:"name"`
	} `json:"metadata"`
	Spec struct {
		Version          string `json:"version"`
		Homepage         string `json:"homepage"`
		ShortDescription string `json:"shortDescription"`
		Description      string `json:"description"`
		Caveats          string `json:"caveats"`
		Platforms        []struct {
			Selector struct {
				MatchLabels struct{ OS, Arch string } `json:"matchLabels"`
			} `json:"selector"`
			URI    string `json:"uri"`
			SHA256 string `json:"sha256"`
			Bin    string `json:"bin"`
		} `json:"platforms"`
	} `json:"spec"`
}

// TestKrewManifest verifies that the manifest of a release has the form that krew demands, with an archive and its own checksum for
// each system.
func TestKrewManifest(t *testing.T) {
	sums := map[string]string{}
	for i, archive := range []string{"linux_amd64.tar.gz", "linux_arm64.tar.gz", "darwin_amd64.tar.gz", "darwin_arm64.tar.gz", "windows_amd64.zip", "windows_arm64.zip"} {
		sums["kubectl-blkio_0.1.0_"+archive] = strings.Repeat(fmt.Sprint(i), 64)
	}
	manifest, err := template.ParseFiles("../../deploy/krew/blkio.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	if err := manifest.Execute(&text, map[string]any{"Version": "0.1.0", "SHA256": func(archive string) string { return sums[archive] }}); err != nil {
		t.Fatal(err)
	}
	var m krewManifest
	if err := yaml.UnmarshalStrict(text.Bytes(), &m); err != nil {
		t.Fatalf("%v\n%s", err, text.String())
	}
	if m.APIVersion != "krew.googlecontainertools.github.com/v1alpha2" || m.Kind != "Plugin" || m.Metadata.Name != "blkio" || m.Spec.Version != "v0.1.0" {
		t.Errorf("manifest %+v", m)
	}
	if s := m.Spec.ShortDescription; len(s) > 50 || strings.HasSuffix(s, ".") || m.Spec.Description == "" || m.Spec.Homepage == "" {
		t.Errorf("descriptions %q, %q", s, m.Spec.Description)
	}
	got := map[string]string{}
	for _, p := range m.Spec.Platforms {
		of := p.Selector.MatchLabels
		archive, found := strings.CutPrefix(p.URI, "https://github.com/nri-blkio/nri-blkio/releases/download/v0.1.0/")
		if !found || !strings.Contains(archive, "_"+of.OS+"_"+of.Arch+".") || !regexp.MustCompile(`^kubectl-blkio(\.exe)?$`).MatchString(p.Bin) || strings.HasSuffix(p.Bin, ".exe") != (of.OS == "windows") {
			t.Errorf("platform %+v", p)
		}
		got[archive] = p.SHA256
	}
	if d := cmp.Diff(sums, got); d != "" || len(m.Spec.Platforms) != len(sums) {
		t.Errorf("-want +got:\n%s", d)
	}
}
