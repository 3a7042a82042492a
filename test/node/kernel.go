package node

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// kernelSuites are the suites of Debian's archives that the kernels come from. Of a
// package in several of them apt takes the newest version.
var kernelSuites = map[string][]string{
	"6.12": {"trixie"},
	// 6.1.176 in the main archive lacks a correction of CVE-2026-64378; the security
	// archive has had it since 6.1.178.
	"6.1":          {"bookworm", "bookworm-security"},
	"6.1-affected": {"bookworm"},
	"7.2":          {"unstable"},
}

// kernelModules are the modules that the initrd loads, with their dependencies: the disks,
// the root's filesystem, and the network, which then needs no wait for udev.
// crc32c_generic is what ext4 asks the crypto API for at mount time.
var kernelModules = []string{"virtio_pci", "virtio_blk", "virtio_net", "virtio_rng", "crc32c_generic", "ext4"}

// kernelPackages have Debian's kernel and its options, and the one program of the initrd.
const kernelPackages = "linux-image-cloud-amd64,busybox-static"

// kernelArtifact holds vmlinuz, initrd.img and lib/modules/VERSION of a kernel.
func kernelArtifact(cfg Config, mirror aptSource) artifact {
	kernel := cfg.Kernel
	if kernelOptions[kernel] != "" {
		return compiledKernels(cfg, mirror)
	}
	suites := kernelSuites[kernel]
	return artifact{
		name: "kernel-" + kernel,
		key:  cacheKey(strings.Join(suites, " "), initScript, strings.Join(kernelModules, " "), "2"),
		build: func(ctx context.Context, dir string) error {
			if err := extractPackages(ctx, dir, suites, mirror, kernelPackages, kernelFile); err != nil {
				return err
			}
			modules, err := kernelModulesDir(dir, kernel)
			if err != nil {
				return err
			}
			return buildInitrd(ctx, dir, modules)
		},
	}
}

// kernelModulesDir returns the directory with the modules of the unpacked kernel. A
// suite that follows new releases, as unstable does, can have left the kernel behind.
func kernelModulesDir(dir, kernel string) (string, error) {
	versions, _ := filepath.Glob(filepath.Join(dir, "lib/modules/*"))
	if len(versions) != 1 {
		return "", fmt.Errorf("want the modules of one kernel, found %q", versions)
	}
	want, _, _ := strings.Cut(kernel, "-")
	if got := filepath.Base(versions[0]); !strings.HasPrefix(got, want+".") {
		return "", fmt.Errorf("kernel %s: Debian %s has %s now", kernel, kernelSuites[kernel][0], got)
	}
	return versions[0], nil
}

// extractPackages unpacks packages without installing them: the hooks of an installed
// kernel would make an initrd that is not used, which takes a minute. place returns the path
// in dir of a file of the packages, "" for nowhere.
func extractPackages(ctx context.Context, dir string, suites []string, mirror aptSource, packages string, place func(name string) string) error {
	archive := filepath.Join(dir, "packages.tar")
	err := mmdebstrap(ctx, mirror, suites, archive, "--variant=extract", "--include="+packages)
	if err != nil {
		return err
	}
	f, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer os.Remove(archive)
	defer f.Close()
	tr := tar.NewReader(f)
	for {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read the packages %s: %w", packages, err)
		}
		to := place(h.Name)
		if h.Typeflag != tar.TypeReg || to == "" {
			continue
		}
		if err := writeFrom(tr, filepath.Join(dir, to), 0o755); err != nil {
			return err
		}
	}
}

// kernelFile returns the path in the artifact of a file of the packages, "" for
// nowhere. Whether /lib and /bin are links into /usr depends on the release.
func kernelFile(name string) string {
	name = strings.TrimPrefix(path.Clean(name), "usr/")
	switch {
	// In unstable Debian's kernel is beside its modules.
	case strings.HasPrefix(name, "boot/vmlinuz-"), strings.HasPrefix(name, "lib/modules/") && path.Base(name) == "vmlinuz":
		return "vmlinuz"
	case strings.HasPrefix(name, "lib/modules/"):
		return name
	case name == "bin/busybox":
		return "busybox"
	}
	return ""
}

func writeFrom(r io.Reader, name string, mode os.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, r)
	return errors.Join(err, f.Close())
}

// buildInitrd unpacks the modules (an emulated CPU takes long over xz), lists
// their dependencies, and packs the few that the root disk needs.
func buildInitrd(ctx context.Context, dir, modules string) error {
	// Trixie packs modules, bookworm does not. Two at a time: a node is built on two cores.
	const unpack = `find "$1" -name '*.ko.xz' -print0 | xargs -0 -r -n 50 -P 2 xz -d`
	if err := runQuietly(exec.CommandContext(ctx, "sh", "-c", unpack, "sh", modules)); err != nil {
		return err
	}
	if err := runQuietly(exec.CommandContext(ctx, "depmod", "-b", dir, filepath.Base(modules))); err != nil {
		return err
	}
	deps, err := os.ReadFile(filepath.Join(modules, "modules.dep"))
	if err != nil {
		return err
	}
	busybox, err := os.ReadFile(filepath.Join(dir, "busybox"))
	if err != nil {
		return err
	}
	files := []cpioFile{
		{name: "bin", dir: true},
		{name: "dev", dir: true},
		{name: "proc", dir: true},
		{name: "root", dir: true},
		{name: "modules", dir: true},
		{name: "bin/busybox", data: busybox},
		{name: "init", data: []byte(initScript)},
	}
	var order strings.Builder
	for _, module := range moduleOrder(string(deps), kernelModules) {
		data, err := os.ReadFile(filepath.Join(modules, module))
		if err != nil {
			return err
		}
		name := path.Base(module)
		files = append(files, cpioFile{name: "modules/" + name, data: data})
		order.WriteString(name + "\n")
	}
	files = append(files, cpioFile{name: "modules.order", data: []byte(order.String())})
	return os.WriteFile(filepath.Join(dir, "initrd.img"), cpioArchive(files), 0o644)
}

// moduleOrder returns the files of the modules in the order to load them in. It
// reads modules.dep (modules.dep(5)), in which a module's dependencies are listed
// the last to load first:
//
//	kernel/fs/ext4/ext4.ko: kernel/fs/jbd2/jbd2.ko kernel/fs/mbcache.ko
//
// A module without a line is built into the kernel, or not in this one.
func moduleOrder(deps string, modules []string) []string {
	files := make(map[string][]string) // by module name, itself first
	for line := range strings.Lines(deps) {
		file, rest, ok := strings.Cut(strings.TrimSpace(line), ":")
		if !ok {
			continue
		}
		name := strings.TrimSuffix(path.Base(file), ".ko")
		files[strings.ReplaceAll(name, "-", "_")] = append([]string{file}, strings.Fields(rest)...)
	}
	var order []string
	seen := make(map[string]bool)
	for _, module := range modules {
		for _, file := range slices.Backward(files[module]) {
			if !seen[file] {
				seen[file] = true
				order = append(order, file)
			}
		}
	}
	return order
}

// cpioFile is a directory or an executable file of an initrd.
type cpioFile struct {
	name string
	data []byte
	dir  bool
}

// cpioArchive writes the "newc" format of the kernel's
// Documentation/driver-api/early-userspace/buffer-format.rst, uncompressed.
func cpioArchive(files []cpioFile) []byte {
	var b bytes.Buffer
	pad := func() {
		for b.Len()%4 != 0 {
			b.WriteByte(0)
		}
	}
	for i, f := range append(files, cpioFile{name: "TRAILER!!!"}) {
		mode := 0o100755
		if f.dir {
			mode = 0o040755
		}
		fmt.Fprintf(&b, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x",
			i+1, mode, 0, 0, 1, 0, len(f.data), 0, 0, 0, 0, len(f.name)+1, 0)
		b.WriteString(f.name + "\x00")
		pad()
		b.Write(f.data)
		pad()
	}
	return b.Bytes()
}
