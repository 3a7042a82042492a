package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
)

// made returns a release as goreleaser makes it, with texts for programs.
func made(t *testing.T) *release {
	t.Helper()
	root := t.TempDir()
	artifacts := `[{"type": "Archive", "path": "dist/nri-blkio_1.2.3_linux_amd64.tar.gz", "goos": "linux", "goarch": "amd64"}`
	for _, platform := range []string{"linux_amd64", "linux_arm64", "darwin_arm64"} {
		system, arch, _ := strings.Cut(platform, "_")
		artifacts += fmt.Sprintf(`, {"type": "Binary", "path": "dist/%s/nri-blkio", "goos": %q, "goarch": %q}`, platform, system, arch)
		write(t, filepath.Join(root, "dist", platform, "nri-blkio"), "for "+platform)
	}
	write(t, filepath.Join(root, "LICENSE"), "license")
	write(t, filepath.Join(root, "dist/artifacts.json"), artifacts+"]")
	write(t, filepath.Join(root, "dist/metadata.json"), `{"version": "1.2.3", "commit": "abc"}`)
	write(t, filepath.Join(root, "dist/nri-blkio_1.2.3_linux_amd64.tar.gz"), "archive")
	r, err := read(filepath.Join(root, "dist"))
	if err != nil {
		t.Fatal(err)
	}
	r.created = time.Unix(1700000000, 0).UTC()
	return r
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestImage verifies the image of each platform as a registry would get it.
func TestImage(t *testing.T) {
	r := made(t)
	digest, err := r.writeImage()
	if err != nil {
		t.Fatal(err)
	}
	index, err := layout.ImageIndexFromPath(filepath.Join(r.dir, "image"))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := index.Digest(); err != nil || got.String() != digest {
		t.Errorf("the layout has %s, want %s: %v", got, digest, err)
	}
	platforms, err := index.IndexManifest()
	if err != nil || len(platforms.Manifests) != 2 {
		t.Fatal(platforms, err)
	}
	for i, arch := range []string{"amd64", "arm64"} {
		if got := platforms.Manifests[i].Platform.String(); got != "linux/"+arch {
			t.Errorf("platform %d is %s", i, got)
		}
		img, err := index.Image(platforms.Manifests[i].Digest)
		if err != nil {
			t.Fatal(err)
		}
		wantImage(t, img, arch)
	}
}

func wantImage(t *testing.T, img v1.Image, arch string) {
	t.Helper()
	config, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if config.Architecture != arch || config.OS != "linux" || config.Config.User != "0:0" ||
		config.Config.Labels["org.opencontainers.image.revision"] != "abc" || config.Created.Unix() != 1700000000 {
		t.Errorf("configuration for %s: %+v", arch, config)
	}
	if diff := cmp.Diff([]string{"/nri-blkio", "run"}, append(config.Config.Entrypoint, config.Config.Cmd...)); diff != "" {
		t.Errorf("command, -want +got:\n%s", diff)
	}
	files := mutate.Extract(img)
	defer files.Close()
	text, err := io.ReadAll(files)
	if err != nil || !strings.Contains(string(text), "for linux_"+arch) || !strings.Contains(string(text), "license") {
		t.Errorf("the files for %s: %v", arch, err)
	}
}

// TestTwice verifies that a release made again has the same checksums, and that these leave out what goreleaser notes for itself.
func TestTwice(t *testing.T) {
	var got [2]string
	for i := range got {
		r := made(t)
		if _, err := r.writeImage(); err != nil {
			t.Fatal(err)
		}
		if _, err := r.writeChecksums(); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(filepath.Join(r.dir, checksums))
		if err != nil {
			t.Fatal(err)
		}
		got[i] = string(text)
	}
	if diff := cmp.Diff(got[0], got[1]); diff != "" {
		t.Errorf("-first +second:\n%s", diff)
	}
	var names []string
	for line := range strings.Lines(got[0]) {
		sum, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		if len(sum) != 64 {
			t.Errorf("checksum of %s: %q", name, sum)
		}
		names = append(names, name)
	}
	if diff := cmp.Diff([]string{"nri-blkio_1.2.3_image.tar", "nri-blkio_1.2.3_linux_amd64.tar.gz"}, names); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestIncomplete verifies that a directory without both programs for Linux is an error.
func TestIncomplete(t *testing.T) {
	r := made(t)
	for _, text := range []string{"", "[]", `[{"type": "Binary", "path": "dist/nri-blkio", "goos": "linux", "goarch": "amd64"}]`} {
		write(t, filepath.Join(r.dir, "artifacts.json"), text)
		if _, err := read(r.dir); err == nil {
			t.Errorf("%q: no error", text)
		}
	}
}

// TestKrew verifies that the manifest for krew has the checksums of the archives, and is not written without one of them.
func TestKrew(t *testing.T) {
	r, template := made(t), filepath.Join("..", "..", krew)
	sums, err := r.writeChecksums()
	if err != nil {
		t.Fatal(err)
	}
	if err := r.writeKrew(template, sums); err == nil {
		t.Error("no error without the archives of kubectl-blkio")
	}
	for _, platform := range []string{"linux_amd64.tar.gz", "linux_arm64.tar.gz", "darwin_amd64.tar.gz", "darwin_arm64.tar.gz", "windows_amd64.zip", "windows_arm64.zip"} {
		write(t, filepath.Join(r.dir, "kubectl-blkio_1.2.3_"+platform), platform)
	}
	if sums, err = r.writeChecksums(); err != nil {
		t.Fatal(err)
	}
	if err := r.writeKrew(template, sums); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(r.dir, "blkio.yaml"))
	if sum := sums["kubectl-blkio_1.2.3_windows_arm64.zip"]; err != nil || len(sum) != 64 || !strings.Contains(string(text), sum) {
		t.Errorf("%v: no checksum %q in\n%s", err, sum, text)
	}
}
