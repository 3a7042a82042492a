package node

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"
)

// sourceVersion is the kernel of Debian whose source is compiled with other options.
const sourceVersion = "6.12"

// kernelOptions are the kernels that are compiled, with the options that no kernel of Debian has. A name is
// sourceVersion and what the kernel calls itself.
var kernelOptions = map[string]string{
	sourceVersion + "-nothrottle": "# CONFIG_BLK_DEV_THROTTLING is not set\n",
	sourceVersion + "-iolatency":  "CONFIG_BLK_CGROUP_IOLATENCY=y\n# CONFIG_BLK_CGROUP_IOCOST is not set\n",
}

// compileTimeout bounds their compilation, also on two cores that do other work.
const compileTimeout = 2 * time.Hour

// compilePackages are the Debian packages that the compilation takes.
var compilePackages = []hostPackage{
	{"gcc", "gcc"},
	{"make", "make"},
	{"bc", "bc"},
	{"flex", "flex"},
	{"bison", "bison"},
	{"zstd", "zstd"},
	{"/usr/include/libelf.h", "libelf-dev"},
}

// compiledKernels holds for each of kernelOptions what kernelArtifact has of another kernel. They are compiled one after the
// other in one tree: most files are the same.
func compiledKernels(cfg Config, mirror aptSource) artifact {
	suites := kernelSuites[sourceVersion]
	names := slices.Sorted(maps.Keys(kernelOptions))
	inputs := []string{strings.Join(suites, " "), initScript, kernelConfig, "1"}
	for _, name := range names {
		inputs = append(inputs, name, kernelOptions[name])
	}
	return artifact{
		name: "kernel-" + sourceVersion + "-compiled",
		key:  cacheKey(inputs...),
		part: cfg.Kernel,
		build: func(ctx context.Context, dir string) error {
			if err := installHostPackages(ctx, cfg, compilePackages); err != nil {
				return err
			}
			source := filepath.Join(dir, "source")
			if err := unpackSource(ctx, source, suites, mirror); err != nil {
				return err
			}
			for _, name := range names {
				if err := compileKernel(ctx, source, filepath.Join(dir, name), name); err != nil {
					return err
				}
			}
			return os.RemoveAll(source)
		},
	}
}

// unpackSource unpacks the source to dir, with Debian's options in debian.config.
func unpackSource(ctx context.Context, dir string, suites []string, mirror aptSource) error {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	const archive = "linux-source-" + sourceVersion
	place := func(name string) string {
		switch base := filepath.Base(name); {
		case strings.HasPrefix(base, "config-"+sourceVersion+"."):
			return "debian.config"
		case base == archive+".tar.xz":
			return "source.tar.xz"
		}
		return kernelFile(name)
	}
	if err := extractPackages(ctx, dir, suites, mirror, kernelPackages+","+archive, place); err != nil {
		return err
	}
	return runQuietly(exec.CommandContext(ctx, "tar", "-x", "--strip-components=1", "-C", dir, "-f", filepath.Join(dir, "source.tar.xz")))
}

// moduleOption is a line of a configuration of the kernel.
var moduleOption = regexp.MustCompile(`(?m)^(CONFIG_\w+)=m$`)

// compileKernel compiles the kernel in source, with Debian's options but no modules, and those of kernel.config and of
// kernelOptions.
func compileKernel(ctx context.Context, source, dir, name string) error {
	debian, err := os.ReadFile(filepath.Join(source, "debian.config"))
	if err != nil {
		return err
	}
	ours := kernelConfig + kernelOptions[name]
	config := moduleOption.ReplaceAllString(string(debian), "# $1 is not set") + ours +
		fmt.Sprintf("CONFIG_LOCALVERSION=%q\n", strings.TrimPrefix(name, sourceVersion))
	file := filepath.Join(source, ".config")
	if err := os.WriteFile(file, []byte(config), 0o644); err != nil {
		return err
	}
	run := func(args ...string) error {
		return runQuietly(exec.CommandContext(ctx, "make", append([]string{"-s", "-C", source}, args...)...))
	}
	if err := run("olddefconfig"); err != nil {
		return err
	}
	got, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if lost := lostOptions(ours, string(got)); len(lost) > 0 {
		return fmt.Errorf("kernel %s: other options exclude %q", name, lost)
	}
	if err := run(fmt.Sprintf("-j%d", runtime.NumCPU()), "bzImage", "modules"); err != nil {
		return err
	}
	if err := run("modules_install", "INSTALL_MOD_PATH="+dir); err != nil {
		return err
	}
	for from, to := range map[string]string{"arch/x86/boot/bzImage": "vmlinuz", "busybox": "busybox"} {
		data, err := os.ReadFile(filepath.Join(source, from))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, to), data, 0o755); err != nil {
			return err
		}
	}
	modules, err := kernelModulesDir(dir, sourceVersion)
	if err != nil {
		return err
	}
	if err := os.Remove(filepath.Join(modules, "build")); err != nil { // a link to the source
		return err
	}
	return buildInitrd(ctx, dir, modules)
}

// lostOptions returns the lines of want that a configuration does not have. An option that is off may be absent.
func lostOptions(want, config string) (lost []string) {
	on := make(map[string]bool)
	for line := range strings.Lines(config) {
		name, _, _ := strings.Cut(line, "=")
		on[strings.TrimSpace(line)], on[name] = true, true
	}
	for line := range strings.Lines(want) {
		line = strings.TrimSpace(line)
		off, isOff := strings.CutSuffix(strings.TrimPrefix(line, "# "), " is not set")
		if isOff && on[off] || strings.HasPrefix(line, "CONFIG_") && !on[line] {
			lost = append(lost, line)
		}
	}
	return lost
}
