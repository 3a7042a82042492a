package node

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

var (
	//go:embed guest/init
	initScript string
	//go:embed guest/customize.sh
	customizeScript string
	//go:embed all:guest/root
	guestFiles embed.FS
	//go:embed build/kernel.config
	kernelConfig string
	//go:embed build/*.mod build/*.sum
	buildFiles embed.FS
)

// rootPackages are the packages of the root image beside those of a minimal Debian.
var rootPackages = []string{
	"systemd", "systemd-sysv", "udev", "dbus", "kmod", "iproute2", "procps", "openssh-server",
	"containerd", "runc", "crun", "conmon", "skopeo", "containernetworking-plugins",
	"lvm2", "thin-provisioning-tools", "cryptsetup-bin", "mdadm", "xfsprogs", "btrfs-progs", "e2fsprogs", "dosfstools",
	"fdisk", "parted", "nfs-kernel-server", "fuse2fs", "erofs-utils",
	"fio", "busybox-static", "strace", "attr", "sqlite3", "postgresql", "qemu-utils",
}

// smallPackages are those of a small node.
var smallPackages = []string{
	"systemd", "systemd-sysv", "udev", "dbus", "kmod", "iproute2", "procps", "openssh-server",
	"containerd", "runc", "containernetworking-plugins", "e2fsprogs", "fio", "busybox-static",
}

const rootSuite = "trixie"

// mmdebstrap makes in the archive a Debian of the first suite, with what the other
// suites add, from the machine's own mirrors.
func mmdebstrap(ctx context.Context, mirror aptSource, suites []string, archive string, options ...string) error {
	list, err := os.CreateTemp("", "node-*.list")
	if err != nil {
		return err
	}
	defer os.Remove(list.Name())
	for _, suite := range suites {
		_, lineErr := list.WriteString(mirror.line(suite))
		err = errors.Join(err, lineErr)
	}
	if err := errors.Join(err, list.Close()); err != nil {
		return err
	}
	args := append(options, aptDates(ctx)...)
	args = append(args,
		`--aptopt=Apt::Install-Recommends "false"`,
		"--dpkgopt=path-exclude=/usr/share/doc/*",
		"--dpkgopt=path-exclude=/usr/share/man/*",
		"--dpkgopt=path-exclude=/usr/share/locale/*",
		"--dpkgopt=path-exclude=/usr/lib/*/libLLVM*", // PostgreSQL's JIT: 120 MB
		suites[0], archive, list.Name())
	return runQuietly(exec.CommandContext(ctx, "mmdebstrap", args...))
}

// aptDates returns the machine's own settings of how old a mirror may be, which
// mmdebstrap leaves out: a mirror that is a snapshot needs them.
func aptDates(ctx context.Context) []string {
	cmd := exec.CommandContext(ctx, "apt-config", "dump", "--no-empty", "--format", "%F \"%v\";%n",
		"Acquire::Check-Valid-Until", "Acquire::Check-Date")
	out, err := cmd.Output()
	if err != nil {
		return nil // apt's defaults hold
	}
	var options []string
	for line := range strings.Lines(string(out)) {
		options = append(options, "--aptopt="+strings.TrimSpace(line))
	}
	return options
}

// noCluster keeps PostgreSQL's package from making a database of its own.
const noCluster = `dir="$1/etc/postgresql-common/createcluster.d"; mkdir -p "$dir"; echo 'create_main_cluster = false' >"$dir/node.conf"`

// baseArtifact holds base.tar: Debian with the packages, which changes seldom.
func baseArtifact(cfg Config, mirror aptSource) artifact {
	name, include := "debian", strings.Join(rootPackages, ",")
	if cfg.Small {
		name, include = "debian-small", strings.Join(smallPackages, ",")
	}
	return artifact{
		name: name,
		key:  cacheKey(rootSuite, include, noCluster, "2"),
		build: func(ctx context.Context, dir string) error {
			return mmdebstrap(ctx, mirror, []string{rootSuite}, filepath.Join(dir, "base.tar"),
				"--variant=minbase", "--include="+include, "--essential-hook="+noCluster)
		},
	}
}

// rootParts are the directories of the artifacts that the root image is made of.
type rootParts struct {
	base     string
	kernel   string
	programs map[string]string // by goProgram name
}

// rootPrograms are the Go programs in the root image of a node. CRI-O takes minutes to build, and few nodes have it.
func rootPrograms(cfg Config) []goProgram {
	switch {
	case cfg.Small:
		return nil
	case cfg.Engine == crioEngine:
		return []goProgram{containerd, kubernetes, crio}
	}
	return []goProgram{containerd, kubernetes}
}

// rootArtifact holds root.img, an ext4 filesystem without partition table, and
// hostkey.pub, by which the node is known over ssh. Each kernel has a root of its own:
// a suite that is out of order affects only the nodes that need it.
func rootArtifact(cfg Config, keys []string, parts func() rootParts) (artifact, error) {
	files, err := hashFS(guestFiles)
	if err != nil {
		return artifact{}, err
	}
	name := "root-" + cfg.Kernel
	switch {
	case cfg.Small:
		name = "root-small-" + cfg.Kernel
	case cfg.Engine == crioEngine:
		name = "root-" + crioEngine + "-" + cfg.Kernel
	}
	inputs := append([]string{files, customizeScript, "1"}, keys...)
	return artifact{
		name: name,
		key:  cacheKey(inputs...),
		build: func(ctx context.Context, dir string) error {
			return buildRoot(ctx, dir, parts())
		},
	}, nil
}

// rootImageSize is sparse: the file takes what is written to it.
const rootImageSize = "12G"

func buildRoot(ctx context.Context, dir string, parts rootParts) error {
	root := filepath.Join(dir, "root")
	if err := os.Mkdir(root, 0o755); err != nil {
		return err
	}
	steps := []func() error{
		func() error {
			return runQuietly(exec.CommandContext(ctx, "tar", "-x", "--numeric-owner", "--xattrs-include=*",
				"-C", root, "-f", filepath.Join(parts.base, "base.tar")))
		},
		func() error { return addPrograms(ctx, root, parts) },
		func() error { return addGuestFiles(root) },
		func() error { return addImages(ctx, root) },
		func() error {
			return runQuietly(exec.CommandContext(ctx, "sh", "-c", customizeScript, "customize.sh", root))
		},
		func() error {
			key, err := os.ReadFile(filepath.Join(root, "etc/ssh/ssh_host_ed25519_key.pub"))
			if err != nil {
				return err
			}
			return os.WriteFile(filepath.Join(dir, "hostkey.pub"), key, 0o644)
		},
		func() error { return makeRootImage(ctx, root, filepath.Join(dir, "root.img")) },
		func() error { return os.RemoveAll(root) },
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// makeRootImage does at once what a mounted ext4 would else do in the background,
// at the time of some measurement.
func makeRootImage(ctx context.Context, root, image string) error {
	return runQuietly(exec.CommandContext(ctx, "mke2fs", "-q", "-F", "-t", "ext4", "-L", "root", "-m", "0",
		"-E", "lazy_itable_init=0,lazy_journal_init=0,nodiscard", "-d", root, image, rootImageSize))
}

// addPrograms copies the kernel's modules and the Go programs.
func addPrograms(ctx context.Context, root string, parts rootParts) error {
	if err := copyInto(ctx, filepath.Join(parts.kernel, "lib/modules"), filepath.Join(root, "usr/lib")); err != nil {
		return err
	}
	for name, dir := range parts.programs {
		to := "usr/local/bin"
		if name == containerd.name {
			to = "opt/containerd2/bin" // Debian's is there too
		}
		if err := copyInto(ctx, dir+"/.", filepath.Join(root, to)); err != nil {
			return err
		}
	}
	return nil
}

func copyInto(ctx context.Context, from, to string) error {
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	return runQuietly(exec.CommandContext(ctx, "cp", "-r", from, to+"/"))
}

// addGuestFiles writes the files under guest/root. embed keeps no modes; what is
// under sbin is executable.
func addGuestFiles(root string) error {
	return fs.WalkDir(guestFiles, "guest/root", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := guestFiles.ReadFile(name)
		if err != nil {
			return err
		}
		to := filepath.Join(root, strings.TrimPrefix(name, "guest/root/"))
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		mode := fs.FileMode(0o644)
		if filepath.Base(filepath.Dir(to)) == "sbin" {
			mode = 0o755
		}
		return os.WriteFile(to, data, mode)
	})
}

// addImages writes the archives of the local images, for the node to import.
func addImages(ctx context.Context, root string) error {
	busybox := filepath.Join(root, "usr/bin/busybox")
	binary, err := os.ReadFile(busybox)
	if err != nil {
		return err
	}
	applets, err := exec.CommandContext(ctx, busybox, "--list").Output()
	if err != nil {
		return fmt.Errorf("busybox --list: %w", err)
	}
	dir := filepath.Join(root, "usr/local/share/nri-node")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for file, img := range map[string]image{
		"pause.tar":   {"docker.io/local/pause:1", []string{"/pause"}, []imageFile{{path: "pause", mode: 0o755, data: pauseBinary()}}},
		"busybox.tar": {"docker.io/local/busybox:1", []string{"/bin/sh"}, busyboxFiles(binary, strings.Fields(string(applets)))},
	} {
		archive, err := img.archive()
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, file), archive, 0o644); err != nil {
			return err
		}
	}
	return nil
}
