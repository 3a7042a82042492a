// Image packs the program of the test containers into an archive that
// `ctr -n k8s.io images import` takes. It needs neither a registry nor a
// container engine.
//
//	go run ./image -o iotool.tar
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

// imageName is what tests ask the CRI for.
const imageName = "local/iotool:1"

func main() {
	out := flag.String("o", "iotool.tar", "the archive to write")
	source := flag.String("source", "./image/iotool", "the package to build")
	flag.Parse()
	if err := run(*source, *out); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

func run(source, out string) error {
	dir, err := os.MkdirTemp("", "iotool")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	binary := filepath.Join(dir, "iotool")
	build := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", binary, source)
	build.Env = append(os.Environ(), "CGO_ENABLED=0") // the image has no libc
	if output, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", source, err, output)
	}
	program, err := os.ReadFile(binary)
	if err != nil {
		return err
	}
	image, err := newImage(program)
	if err != nil {
		return fmt.Errorf("make image: %w", err)
	}
	tag, err := name.NewTag("docker.io/" + imageName)
	if err != nil {
		return err
	}
	return tarball.WriteToFile(out, tag, image)
}

// newImage is an image with the program at /bin/iotool and nothing else but the
// directories that tests mount on and write to.
func newImage(program []byte) (v1.Image, error) {
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	for _, dir := range []string{"bin/", "tmp/", "data/", "etc/"} {
		if err := w.WriteHeader(&tar.Header{Name: dir, Typeflag: tar.TypeDir, Mode: 0o755}); err != nil {
			return nil, err
		}
	}
	err := w.WriteHeader(&tar.Header{Name: "bin/iotool", Mode: 0o755, Size: int64(len(program))})
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
	config.Config = v1.Config{Entrypoint: []string{"/bin/iotool"}, Cmd: []string{"sleep"}}
	return mutate.ConfigFile(image, config)
}
