package kernel

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
)

// Release holds the texts by which a node identifies its kernel.
type Release struct {
	// Uname is the release that uname -r prints, "6.1.0-56-cloud-amd64".
	Uname string
	// Build is the version that uname -v prints,
	// "#1 SMP PREEMPT_DYNAMIC Debian 6.1.192-2 (2026-11-16)".
	Build string
	// OS is the field ID of the node's os-release(5); "" if there is none.
	OS string
}

// Read reads the texts from procfs and from the root directory of the node. The procfs may
// be that of a container.
//
// Source: Documentation/admin-guide/sysctl/kernel.rst, osrelease and version.
func Read(proc, host fs.FS) (Release, error) {
	uname, err := fs.ReadFile(proc, "sys/kernel/osrelease")
	if err != nil {
		return Release{}, fmt.Errorf("read the kernel's release: %w", err)
	}
	build, err := fs.ReadFile(proc, "sys/kernel/version")
	if err != nil {
		return Release{}, fmt.Errorf("read the kernel's version: %w", err)
	}
	r := Release{Uname: strings.TrimSpace(string(uname)), Build: strings.TrimSpace(string(build))}
	r.OS, err = readOS(host)
	return r, err
}

// readOS returns the field ID of the first os-release file that exists. The one in /etc is
// mostly a link to the other, and an absolute link leads out of the node's root.
func readOS(host fs.FS) (string, error) {
	for _, name := range []string{"usr/lib/os-release", "etc/os-release"} {
		data, err := fs.ReadFile(host, name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return "", fmt.Errorf("read the node's os-release: %w", err)
		}
		return osID(string(data)), nil
	}
	return "", nil
}

// osID returns the field ID of os-release(5):
//
//	PRETTY_NAME="Debian GNU/Linux 13 (trixie)"
//	ID=debian
func osID(text string) string {
	for line := range strings.Lines(text) {
		if id, ok := strings.CutPrefix(strings.TrimSpace(line), "ID="); ok {
			return strings.Trim(id, `"'`)
		}
	}
	return ""
}

// version is a version of an upstream kernel, "6.1.192".
type version struct{ major, minor, patch int }

func (v version) String() string { return fmt.Sprintf("%d.%d.%d", v.major, v.minor, v.patch) }

func (v version) compare(w version) int {
	return cmp.Or(cmp.Compare(v.major, w.major), cmp.Compare(v.minor, w.minor), cmp.Compare(v.patch, w.patch))
}

// sameLine reports whether two versions belong to the same stable line, as all 6.1.x do.
func (v version) sameLine(w version) bool { return v.major == w.major && v.minor == w.minor }

// parseVersion parses the version that text begins with, and returns the rest. A
// version without its third number is the first one of its line.
func parseVersion(text string) (v version, rest string, ok bool) {
	rest = text
	for i, to := range []*int{&v.major, &v.minor, &v.patch} {
		if i > 0 {
			after, found := strings.CutPrefix(rest, ".")
			if !found && i == 2 {
				break
			}
			if !found {
				return version{}, text, false
			}
			rest = after
		}
		digits := rest[:len(rest)-len(strings.TrimLeft(rest, "0123456789"))]
		n, err := strconv.Atoi(digits)
		if err != nil {
			return version{}, text, false
		}
		*to, rest = n, rest[len(digits):]
	}
	return v, rest, true
}
