package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// hostPackage is a Debian package, and a program or the path of a file that shows that it is there.
type hostPackage struct{ shownBy, name string }

// hostPackages are those that building and booting a node takes.
var hostPackages = []hostPackage{
	{"qemu-system-x86_64", "qemu-system-x86"},
	{"mmdebstrap", "mmdebstrap"},
	{"mke2fs", "e2fsprogs"},
	{"mkfs.xfs", "xfsprogs"},
	{"mkfs.btrfs", "btrfs-progs"},
	{"sfdisk", "fdisk"},
	{"depmod", "kmod"},
	{"xz", "xz-utils"},
}

// minQEMU is the first major version seen to emulate several CPUs in parallel
// without crashing the guest; 7.2, Debian 12's own, does not.
const minQEMU = 10

// installHostPackages installs what is missing, when it may. It adds nothing to
// the machine's apt configuration: backports are given to apt for these calls only.
func installHostPackages(ctx context.Context, cfg Config, packages []hostPackage) error {
	missing := missingPackages(ctx, packages)
	if len(missing) == 0 {
		return nil
	}
	mirror, err := debianMirror("/etc/apt")
	if err != nil {
		return fmt.Errorf("install %s: %w", strings.Join(missing, " "), err)
	}
	list, target := mirror.line(mirror.suite), ""
	if release := hostRelease(); release == "bookworm" {
		list = mirror.line(release) + mirror.line(release+"-updates") + mirror.line(release+"-backports")
		target = " -t bookworm-backports"
	}
	if os.Geteuid() != 0 {
		return fmt.Errorf("missing on this machine: %s; run once: sudo sh -c '%s'",
			strings.Join(missing, " "), installCommand(list, target, missing))
	}
	cfg.logf("installing %s", strings.Join(missing, " "))
	if err := aptInstall(ctx, list, target, missing); err != nil {
		return err
	}
	if missing := missingPackages(ctx, packages); len(missing) > 0 {
		return fmt.Errorf("still missing after the installation: %s", strings.Join(missing, " "))
	}
	return nil
}

// aptInstall installs packages from the sources in list only: another vendor's
// repository that is out of order does not matter then.
func aptInstall(ctx context.Context, list, target string, packages []string) error {
	file, err := os.CreateTemp("", "node-*.list")
	if err != nil {
		return fmt.Errorf("install packages: %w", err)
	}
	defer os.Remove(file.Name())
	_, err = file.WriteString(list)
	if err := errors.Join(err, file.Chmod(0o644), file.Close()); err != nil {
		return fmt.Errorf("install packages: %w", err)
	}
	options := []string{
		"-o", "Dir::Etc::sourcelist=" + file.Name(), "-o", "Dir::Etc::sourceparts=-",
		"-o", "APT::Get::List-Cleanup=0", "-o", "DPkg::Lock::Timeout=300", "-q",
	}
	install := append([]string{"install", "-y", "--no-install-recommends"}, strings.Fields(target)...)
	for _, args := range [][]string{{"update"}, append(install, packages...)} {
		cmd := exec.CommandContext(ctx, "apt-get", append(slices.Clone(options), args...)...)
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		if err := runQuietly(cmd); err != nil {
			return err
		}
	}
	return nil
}

// installCommand returns the command to type. It needs a sources file only for backports.
func installCommand(list, target string, missing []string) string {
	install := "apt-get update && apt-get install -y --no-install-recommends" + target + " " + strings.Join(missing, " ")
	if target == "" {
		return install
	}
	lines := strings.Split(strings.TrimSpace(list), "\n")
	return "echo \"" + lines[len(lines)-1] + "\" >/etc/apt/sources.list.d/backports.list && " + install
}

func missingPackages(ctx context.Context, packages []hostPackage) []string {
	var missing []string
	for _, p := range packages {
		_, err := lookProgram(p.shownBy)
		if strings.HasPrefix(p.shownBy, "/") {
			_, err = os.Stat(p.shownBy)
		}
		if err != nil {
			missing = append(missing, p.name)
			continue
		}
		if p.shownBy == "qemu-system-x86_64" && qemuMajor(ctx) < minQEMU {
			missing = append(missing, p.name)
		}
	}
	return missing
}

// lookProgram also looks where an ordinary user's PATH does not.
func lookProgram(name string) (string, error) {
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	for _, dir := range []string{"/usr/sbin", "/sbin"} {
		if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s: %w", name, exec.ErrNotFound)
}

// qemuMajor is 0 when QEMU does not say its version.
func qemuMajor(ctx context.Context) int {
	out, err := exec.CommandContext(ctx, "qemu-system-x86_64", "--version").Output()
	if err != nil {
		return 0
	}
	return parseQEMUMajor(string(out))
}

// parseQEMUMajor reads the first line of `qemu-system-x86_64 --version`:
//
//	QEMU emulator version 10.0.2 (Debian 1:10.0.2+ds-2~bpo12+1)
func parseQEMUMajor(text string) int {
	_, rest, _ := strings.Cut(text, "version ")
	major, _, _ := strings.Cut(rest, ".")
	n, err := strconv.Atoi(major)
	if err != nil {
		return 0
	}
	return n
}

// hostRelease is VERSION_CODENAME of os-release(5), or "".
func hostRelease() string {
	data, err := os.ReadFile("/etc/os-release")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(data)) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), "VERSION_CODENAME="); ok {
			return strings.Trim(value, `"`)
		}
	}
	return ""
}

// runQuietly runs a program whose output matters only when it fails.
func runQuietly(cmd *exec.Cmd) error {
	if path, err := lookProgram(cmd.Args[0]); err == nil {
		cmd.Path, cmd.Err = path, nil
	}
	// SIGTERM lets mmdebstrap take away its mounts and files, which can take it
	// most of a minute beside other work; one that does not end then is killed.
	stopped := false
	if cmd.Cancel != nil {
		cmd.Cancel = func() error {
			stopped = true
			return cmd.Process.Signal(syscall.SIGTERM)
		}
	}
	cmd.WaitDelay = time.Minute
	out, err := cmd.CombinedOutput()
	switch {
	case err == nil:
		return nil
	case stopped:
		return fmt.Errorf("%s: stopped: %w", cmd.Args[0], err)
	}
	return fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, lastLines(string(out), 30))
}

// lastLines returns the last n lines of text.
func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
