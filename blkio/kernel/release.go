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

// vendor is a distribution whose kernels are recognised.
type vendor struct {
	name string
	// base returns the newest upstream version that is completely contained in a release of
	// this vendor. known is false if the vendor's numbers do not show that version. is
	// reports whether the release is this vendor's.
	base func(Release) (v version, known, is bool)
}

// vendors returns the vendors in the order in which they are tried.
//
// Vendors that number their kernels as upstream does rebase on each stable release, so that a release has all
// corrections of the upstream one. Some also pick corrections before that: the verdict for such a kernel is too
// strict, not too lax.
func vendors() []vendor {
	return []vendor{
		// https://packages.debian.org/source/linux: the package's version is upstream's, and uname -v has it.
		{"Debian", debian},
		// https://ubuntu.com/security/CVE-2026-64378: its own numbers; corrections are listed by package, and none was as of 2026-07-30.
		{"Ubuntu", own(func(r Release) bool { return strings.Contains(r.Build, "-Ubuntu ") })},
		// https://access.redhat.com/security/cve/CVE-2026-64378: its own numbers; no source names the release with the correction.
		{"Red Hat Enterprise Linux", own(isRHEL)},
		// https://docs.aws.amazon.com/linux/al2023/release-notes: kernel-6.1.177-224.371.amzn2023, kernel6.12-6.12.95-124.187.amzn2023.
		{"Amazon Linux", upstream(func(_ Release, rest string) bool { return strings.Contains(rest, ".amzn") })},
		// https://github.com/siderolabs/talos, pkg/machinery/constants: DefaultKernelVersion "6.18.x-talos".
		{"Talos", upstream(func(_ Release, rest string) bool { return rest == "-talos" })},
		// https://github.com/flatcar/scripts, changelog/updates: one update for each stable release.
		{"Flatcar", upstream(func(_ Release, rest string) bool { return rest == "-flatcar" })},
		// https://cloud.google.com/container-optimized-os/docs/release-notes: upstream's number and a plus sign, 6.12.94+.
		{"Container-Optimized OS", upstream(func(r Release, rest string) bool { return r.OS == "cos" && rest == "+" })},
		// https://github.com/bottlerocket-os/bottlerocket-kernel-kit, packages/kernel-6.12: Amazon Linux's source package.
		{"Bottlerocket", upstream(func(r Release, rest string) bool { return r.OS == "bottlerocket" && rest == "" })},
		// https://git.kernel.org/pub/scm/linux/kernel/git/stable/linux.git, Makefile.
		{"upstream", upstream(func(_ Release, rest string) bool { return rest == "" })},
	}
}

// upstream is the base of a vendor whose releases begin with upstream's version. is
// decides by the rest of the release.
func upstream(is func(r Release, rest string) bool) func(Release) (version, bool, bool) {
	return func(r Release) (version, bool, bool) {
		v, rest, ok := parseVersion(r.Uname)
		ok = ok && is(r, rest)
		return v, ok, ok
	}
}

// own is the base of a vendor with numbers of its own.
func own(is func(Release) bool) func(Release) (version, bool, bool) {
	return func(r Release) (version, bool, bool) { return version{}, false, is(r) }
}

// debian reads the package's version from uname -v; uname -r has 6.1.0 throughout 6.1:
//
//	#1 SMP PREEMPT_DYNAMIC Debian 6.1.192-2 (2026-11-16)
func debian(r Release) (v version, known, is bool) {
	_, rest, is := strings.Cut(r.Build, " Debian ")
	if !is {
		return version{}, false, false
	}
	v, _, known = parseVersion(rest)
	return v, known, true
}

// isRHEL recognises Red Hat's kernels and those built from them: "5.14.0-503.el9.x86_64",
// "4.18.0-553.el8_10.x86_64", "6.12.0-55.el10_0.x86_64".
func isRHEL(r Release) bool {
	_, rest, ok := strings.Cut(r.Uname, ".el")
	return ok && rest != "" && rest[0] >= '0' && rest[0] <= '9'
}
