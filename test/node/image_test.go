package node

import (
	"archive/tar"
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

func untar(t *testing.T, data []byte) map[string][]byte {
	t.Helper()
	files := make(map[string][]byte)
	tr := tar.NewReader(bytes.NewReader(data))
	for {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(tr)
		if err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeSymlink {
			data = []byte("-> " + h.Linkname)
		}
		files[h.Name] = data
	}
}

// TestImageArchive reads the images back.
func TestImageArchive(t *testing.T) {
	images := []image{
		{"docker.io/local/pause:1", []string{"/pause"}, []imageFile{{path: "pause", mode: 0o755, data: pauseBinary()}}},
		{"docker.io/local/busybox:1", []string{"/bin/sh"}, busyboxFiles([]byte("binary"), []string{"busybox", "sh"})},
	}
	want := []map[string]string{{"pause": string(pauseBinary())}, {"bin/sh": "-> busybox", "bin/busybox": "binary"}}
	for i, img := range images {
		data, err := img.archive()
		if err != nil {
			t.Fatal(err)
		}
		again, err := img.archive()
		if err != nil || !bytes.Equal(data, again) {
			t.Errorf("%s: the same image gives other bytes (%v)", img.name, err)
		}
		tag, err := name.NewTag(img.name)
		if err != nil {
			t.Fatal(err)
		}
		read, err := tarball.Image(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data)), nil }, &tag)
		if err != nil {
			t.Fatal(err)
		}
		config, err := read.ConfigFile()
		if err != nil || !slices.Equal(config.Config.Cmd, img.command) || config.OS != "linux" {
			t.Errorf("%s: configuration %+v, error %v", img.name, config, err)
		}
		files := untar(t, layerOf(t, read))
		for name, content := range want[i] {
			if string(files[name]) != content {
				t.Errorf("%s: %s has %q, want %q", img.name, name, files[name], content)
			}
		}
	}
}

// layerOf returns the tar of the image's only layer.
func layerOf(t *testing.T, img v1.Image) []byte {
	t.Helper()
	layers, err := img.Layers()
	if err != nil || len(layers) != 1 {
		t.Fatalf("%d layers, error %v", len(layers), err)
	}
	r, err := layers[0].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	data, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestPauseBinary runs the program: it must wait, and not crash.
func TestPauseBinary(t *testing.T) {
	f, err := elf.NewFile(bytes.NewReader(pauseBinary()))
	if err != nil {
		t.Fatal(err)
	}
	if f.Machine != elf.EM_X86_64 || f.Type != elf.ET_EXEC {
		t.Errorf("the pause binary is for machine %s, of type %s", f.Machine, f.Type)
	}
	program := filepath.Join(t.TempDir(), "pause")
	if err := os.WriteFile(program, pauseBinary(), 0o755); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := exec.CommandContext(ctx, program).Run(); ctx.Err() == nil {
		t.Errorf("the pause binary ended before it was killed: %v", err)
	}
}

func TestKernelFile(t *testing.T) {
	for name, want := range map[string]string{
		"./boot/vmlinuz-6.12.1-cloud-amd64":                "vmlinuz",
		"./usr/lib/modules/6.12.1/kernel/fs/x.ko.xz":       "lib/modules/6.12.1/kernel/fs/x.ko.xz",
		"./usr/lib/modules/7.2.13+deb14/vmlinuz":           "vmlinuz",
		"./lib/modules/6.1.0/modules.builtin":              "lib/modules/6.1.0/modules.builtin",
		"./bin/busybox":                                    "busybox",
		"./usr/bin/busybox":                                "busybox",
		"./usr/share/initramfs-tools/conf-hooks.d/busybox": "",
		"./boot/System.map-6.12.1":                         "",
		"./etc/passwd":                                     "",
	} {
		if got := kernelFile(name); got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
}

func TestModuleOrder(t *testing.T) {
	const deps = `kernel/fs/ext4/ext4.ko: kernel/fs/jbd2/jbd2.ko kernel/lib/crc16.ko kernel/fs/mbcache.ko
kernel/fs/jbd2/jbd2.ko: kernel/lib/crc16.ko
kernel/drivers/net/virtio-net.ko: kernel/net/failover.ko
kernel/lib/crc16.ko:
`
	got := moduleOrder(deps, []string{"virtio_net", "built_in", "ext4"})
	want := []string{
		"kernel/net/failover.ko", "kernel/drivers/net/virtio-net.ko",
		"kernel/fs/mbcache.ko", "kernel/lib/crc16.ko", "kernel/fs/jbd2/jbd2.ko", "kernel/fs/ext4/ext4.ko",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// TestCPIOArchive checks alignment and lengths with the header's own fields.
func TestCPIOArchive(t *testing.T) {
	data := cpioArchive([]cpioFile{{name: "dev", dir: true}, {name: "init", data: []byte("#!x\n5")}})
	if len(data)%4 != 0 || !bytes.HasPrefix(data, []byte("070701")) {
		t.Fatalf("the archive has %d bytes and begins with %.20q, want a multiple of 4 and 070701", len(data), data)
	}
	at := bytes.LastIndex(data, []byte("070701"))
	if at%4 != 0 || !bytes.Contains(data[at:], []byte("TRAILER!!!\x00")) {
		t.Errorf("the last entry of the archive, at %d, is not the trailer: %q", at, data[at:])
	}
	if !bytes.Contains(data, []byte("init\x00\x00#!x\n5\x00\x00\x00")) {
		t.Errorf("the file is not padded to 4 bytes: %q", data)
	}
}

func TestShellQuote(t *testing.T) {
	words := []string{"printf", "%s|", "a b", "it's", "$HOME", "", "new\nline", `"\`}
	out, err := exec.CommandContext(t.Context(), "sh", "-c", shellQuote(words)).Output()
	if err != nil {
		t.Fatal(err)
	}
	if want := strings.Join(words[2:], "|") + "|"; string(out) != want {
		t.Errorf("got %q, want %q", out, want)
	}
}

func TestLastLines(t *testing.T) {
	if got := lastLines("a\nb\nc\n", 2); got != "b\nc" {
		t.Errorf("the last 2 of 3 lines are %q", got)
	}
	if got := lastLines("a", 5); got != "a" {
		t.Errorf("the last 5 lines of one line are %q", got)
	}
}
