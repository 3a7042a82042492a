package main

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// writeImage writes the image of all platforms as an OCI layout, the directory image, and as an archive of that. It returns
// the digest of the image's index.
func (r *release) writeImage() (string, error) {
	license, err := os.ReadFile(filepath.Join(filepath.Dir(r.dir), "LICENSE"))
	if err != nil {
		return "", err
	}
	about := map[string]string{
		"org.opencontainers.image.created":  r.created.Format(time.RFC3339),
		"org.opencontainers.image.licenses": "Apache-2.0",
		"org.opencontainers.image.revision": r.commit,
		"org.opencontainers.image.source":   "https://github.com/nri-blkio/nri-blkio",
		"org.opencontainers.image.version":  r.version,
	}
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, arch := range slices.Sorted(maps.Keys(r.programs)) {
		program, err := os.ReadFile(r.programs[arch])
		if err != nil {
			return "", err
		}
		img, err := newImage(arch, program, license, r.created, about)
		if err != nil {
			return "", err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: img, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch}},
		})
	}
	index = mutate.Annotations(index, about).(v1.ImageIndex)
	dir := filepath.Join(r.dir, "image")
	if err := os.RemoveAll(dir); err != nil {
		return "", err
	}
	// The index of the layout is that of the image: `crane push --index` pushes it under its digest.
	if _, err := layout.Write(dir, index); err != nil {
		return "", err
	}
	digest, err := index.Digest()
	if err != nil {
		return "", err
	}
	return digest.String(), archive(dir, filepath.Join(r.dir, "nri-blkio_"+r.version+"_image.tar"))
}

// newImage returns an image like that of the Dockerfile.
func newImage(arch string, program, license []byte, created time.Time, labels map[string]string) (v1.Image, error) {
	var files bytes.Buffer
	w := tar.NewWriter(&files)
	for _, f := range []struct {
		name string
		mode int64
		data []byte
	}{{"LICENSE", 0o644, license}, {"nri-blkio", 0o755, program}} {
		if err := w.WriteHeader(&tar.Header{Name: f.name, Mode: f.mode, Size: int64(len(f.data)), ModTime: created}); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.data); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(files.Bytes())), nil
	}, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	img, err := mutate.AppendLayers(mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON), layer)
	if err != nil {
		return nil, err
	}
	config, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = "linux", arch, v1.Time{Time: created}
	config.Config = v1.Config{User: "0:0", Entrypoint: []string{"/nri-blkio"}, Cmd: []string{"run"}, Labels: labels}
	return mutate.ConfigFile(img, config)
}

// archive writes the files of a directory, without what differs from run to run.
func archive(dir, file string) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	defer f.Close()
	w := tar.NewWriter(f)
	err = fs.WalkDir(os.DirFS(dir), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(data))}); err != nil {
			return err
		}
		_, err = w.Write(data)
		return err
	})
	if err != nil {
		return fmt.Errorf("archive %s: %w", dir, err)
	}
	if err := w.Close(); err != nil {
		return err
	}
	return f.Close()
}
