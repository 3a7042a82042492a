// Image packs a program, by default that of the test containers, into an archive
// that `ctr -n k8s.io images import` takes. It needs neither a registry nor a
// container engine.
//
//	go run ./image -o iotool.tar
//	go run ./image -o nri-blkio.tar -name example/nri-blkio:latest -path nri-blkio -binary nri-blkio
package main

import (
	"archive/tar"
	"bytes"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

func main() {
	out := flag.String("o", "iotool.tar", "the archive to write")
	tag := flag.String("name", "docker.io/local/iotool:1", "the image's name")
	path := flag.String("path", "bin/iotool", "the program's path in the image")
	binary := flag.String("binary", "", "the program; if empty, ./image/iotool is built")
	flag.Parse()
	if err := run(*binary, *path, *tag, *out); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

func run(binary, path, tag, out string) error {
	if binary == "" {
		dir, err := os.MkdirTemp("", "iotool")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		binary = filepath.Join(dir, "iotool")
		build := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", binary, "./image/iotool")
		build.Env = append(os.Environ(), "CGO_ENABLED=0") // the image has no libc
		if output, err := build.CombinedOutput(); err != nil {
			return fmt.Errorf("build iotool: %w\n%s", err, output)
		}
	}
	program, err := os.ReadFile(binary)
	if err != nil {
		return err
	}
	image, err := newImage(program, path)
	if err != nil {
		return fmt.Errorf("make image: %w", err)
	}
	ref, err := name.NewTag(tag)
	if err != nil {
		return err
	}
	return tarball.WriteToFile(out, ref, image)
}

// newImage is an image with the program and nothing else but the directories that
// tests mount on and write to.
func newImage(program []byte, path string) (v1.Image, error) {
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	for _, dir := range []string{"bin/", "tmp/", "data/", "etc/"} {
		if err := w.WriteHeader(&tar.Header{Name: dir, Typeflag: tar.TypeDir, Mode: 0o755}); err != nil {
			return nil, err
		}
	}
	err := w.WriteHeader(&tar.Header{Name: path, Mode: 0o755, Size: int64(len(program))})
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(program); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	content, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(layer.Bytes())), nil
	})
	if err != nil {
		return nil, err
	}
	image, err := mutate.AppendLayers(empty.Image, content)
	if err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	// containerd leaves out what says of no platform that it is for it.
	config.OS, config.Architecture = "linux", runtime.GOARCH
	config.Config = v1.Config{Entrypoint: []string{"/" + path}, Cmd: []string{"sleep"}}
	return mutate.ConfigFile(image, config)
}
