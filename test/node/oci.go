package node

import (
	"archive/tar"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// imageFile is a file of an image's only layer. Link makes it a symbolic link.
type imageFile struct {
	path, link string
	mode       int64
	data       []byte
	dir        bool
}

// image is an image with one layer.
type image struct {
	name    string
	command []string
	files   []imageFile
}

// archive returns the image as `ctr image import` and `skopeo copy docker-archive:` take it, without a registry or a
// daemon. The same image gives the same bytes.
func (img image) archive() ([]byte, error) {
	ref, err := name.NewTag(img.name)
	if err != nil {
		return nil, err
	}
	built, err := img.build()
	if err != nil {
		return nil, fmt.Errorf("image %s: %w", img.name, err)
	}
	var archive bytes.Buffer
	err = tarball.Write(ref, built, &archive)
	return archive.Bytes(), err
}

func (img image) build() (v1.Image, error) {
	content, err := tarFiles(img.files)
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil })
	if err != nil {
		return nil, err
	}
	built, err := mutate.AppendLayers(empty.Image, layer)
	if err != nil {
		return nil, err
	}
	config, err := built.ConfigFile()
	if err != nil {
		return nil, err
	}
	config.OS, config.Architecture = "linux", "amd64"
	// Process 1 ignores SIGTERM by default. CRI-O sends it to a sandbox's process, and waits for its end up to 90 s.
	config.Config = v1.Config{Cmd: img.command, Env: []string{"PATH=/bin"}, StopSignal: "SIGKILL"}
	return mutate.ConfigFile(built, config)
}

func tarFiles(files []imageFile) ([]byte, error) {
	var buf bytes.Buffer
	tw := tar.NewWriter(&buf)
	for _, f := range files {
		h := &tar.Header{Name: f.path, Mode: f.mode, Size: int64(len(f.data)), Typeflag: tar.TypeReg}
		switch {
		case f.dir:
			h.Typeflag = tar.TypeDir
		case f.link != "":
			h.Typeflag, h.Linkname = tar.TypeSymlink, f.link
		}
		if err := tw.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := tw.Write(f.data); err != nil {
			return nil, err
		}
	}
	if err := tw.Close(); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}

// pauseBinary is a static x86-64 program that calls pause(2) for ever, as the
// sandbox's only process must. By hand it has 129 bytes, and starts at once on an
// emulated CPU and holds one page: a Go program would count against the memory
// limit of every pod that a test makes.
func pauseBinary() []byte {
	const base, header = 0x400000, 64 + 56
	code := []byte{
		0xb8, 34, 0, 0, 0, // mov eax, 34 (pause)
		0x0f, 0x05, // syscall
		0xeb, 0xf7, // jmp to the mov
	}
	size := uint64(header + len(code))
	var b bytes.Buffer
	b.WriteString("\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00")
	for _, field := range []any{
		// Elf64_Ehdr after e_ident: executable, x86-64, one program header.
		uint16(2), uint16(62), uint32(1), uint64(base + header), uint64(64), uint64(0),
		uint32(0), uint16(64), uint16(56), uint16(1), uint16(0), uint16(0), uint16(0),
		// Elf64_Phdr: load the whole file, readable and executable.
		uint32(1), uint32(5), uint64(0), uint64(base), uint64(base), size, size, uint64(0x1000),
	} {
		_ = binary.Write(&b, binary.LittleEndian, field) // a bytes.Buffer takes all
	}
	b.Write(code)
	return b.Bytes()
}

// busyboxFiles are the files of local/busybox:1: the static binary and a link for
// each applet, in /bin.
func busyboxFiles(binary []byte, applets []string) []imageFile {
	files := []imageFile{
		{path: "bin/", mode: 0o755, dir: true},
		{path: "tmp/", mode: 0o1777, dir: true},
		{path: "etc/", mode: 0o755, dir: true},
		{path: "etc/passwd", mode: 0o644, data: []byte("root:x:0:0:root:/:/bin/sh\n")},
		{path: "etc/group", mode: 0o644, data: []byte("root:x:0:\n")},
		{path: "bin/busybox", mode: 0o755, data: binary},
	}
	for _, a := range applets {
		if a != "busybox" {
			files = append(files, imageFile{path: "bin/" + a, mode: 0o777, link: "busybox"})
		}
	}
	return files
}
