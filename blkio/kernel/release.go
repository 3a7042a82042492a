// Package kernel identifies the running kernel, and reports whether it contains the
// corrections of known bugs.
//
// A correction leaves nothing to probe for. So this is the only package that compares
// versions. Only [Read] does I/O.
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

// bug is one that a kernel can have when inodes are moved to another cgroup's
// writeback: by their pages, or at the end of a cgroup.
type bug struct {
	id string
	// introduced is the first version with the bug. Lines below got it with the same
	// release that corrected it.
	introduced version
	// fixed are the first corrected releases of the stable lines that got one.
	fixed []version
	// mainline is the first line that never had the bug.
	mainline version
}

// writebackBugs returns the bugs of inode_switch_wbs and of cleanup_offline_cgwb in fs/fs-writeback.c, in the
// order in which a verdict names them.
//
// Source: the records of these names in https://github.com/CVEProject/cvelistV5.
func writebackBugs() []bug {
	return []bug{
		{ // An unmount while inodes move crashes the kernel.
			id: "CVE-2026-64378", introduced: version{4, 5, 0}, mainline: version{7, 2, 0},
			fixed: []version{{5, 10, 261}, {6, 1, 178}, {6, 6, 145}, {6, 12, 96}, {6, 18, 39}, {7, 1, 4}},
		},
		{ // A write while inodes move uses freed memory.
			id: "CVE-2025-39866", introduced: version{4, 2, 0}, mainline: version{6, 17, 0},
			fixed: []version{{5, 10, 247}, {5, 15, 192}, {6, 1, 151}, {6, 6, 105}, {6, 12, 46}, {6, 16, 6}},
		},
		{ // Moving inodes uses freed memory.
			// Of commit e1b849cfa6b6, corrected by 6689f01d6740. The lines 6.1, 6.6 and
			// 6.12 got both in one release: 6.1.178, 6.6.145 and 6.12.94.
			id: "CVE-2026-31703", introduced: version{6, 18, 0}, mainline: version{7, 1, 0},
			fixed: []version{{6, 18, 25}, {7, 0, 2}},
		},
	}
}

// in reports whether a kernel has the bug. fix is the corrected release to update to:
// the one of its own line, or the first line that never had the bug.
func (b *bug) in(v version) (has bool, fix version) {
	fix = b.mainline
	for _, f := range b.fixed {
		if f.sameLine(v) {
			fix = f
		}
	}
	return v.compare(b.introduced) >= 0 && v.compare(fix) < 0, fix
}

// State is the state of the bugs in a kernel.
type State int

const (
	// Unknown is the state of a kernel that may or may not have the bugs: its version does
	// not show that.
	Unknown State = iota
	// Affected is the state of a kernel with at least one of the bugs.
	Affected
	// Fixed is the state of a kernel without them.
	Fixed
)

// Verdict reports whether one kernel has the bugs. The zero value is the verdict on an unknown kernel.
type Verdict struct {
	State  State
	Vendor string // "" if it is not known
	Kernel string // the version that was compared: the upstream version if it is known, otherwise that of uname -r
	// Bug and Fix name a bug, and the upstream release that corrects it. For an affected
	// kernel they are its own bug and the release for its line. For an unknown kernel they
	// are the bug that was corrected last, and the first mainline release without it.
	Bug, Fix string
}

// Writeback reports whether the kernel can move inodes to the writeback of another cgroup
// without bugs that crash nodes.
func (r Release) Writeback() Verdict {
	out := Verdict{Kernel: r.Uname}
	var v version
	known := false
	for _, vendor := range vendors() {
		var is bool
		if v, known, is = vendor.base(r); is {
			out.Vendor = vendor.name
			break
		}
	}
	bugs := writebackBugs()
	if !known {
		// A vendor may have patched the kernel, but a line without the bugs has none of them.
		v, _, known = parseVersion(r.Uname)
		known = known && v.compare(bugs[0].mainline) >= 0
	}
	if !known {
		out.Bug, out.Fix = bugs[0].id, bugs[0].mainline.String()
		return out
	}
	out.State = Fixed
	out.Kernel = v.String()
	for _, b := range bugs {
		if has, fix := b.in(v); has {
			out.State, out.Bug, out.Fix = Affected, b.id, fix.String()
			break
		}
	}
	return out
}

// Corrected reports whether the kernel is known to have none of the bugs.
func (v Verdict) Corrected() bool { return v.State == Fixed }

// String returns one clause for a line of the log or of a table.
func (v Verdict) String() string {
	name := strings.TrimSpace(v.Vendor + " kernel " + v.Kernel)
	switch v.State {
	case Fixed:
		return fmt.Sprintf("%s has the corrections of all known bugs", name)
	case Affected:
		return fmt.Sprintf("%s has %s, which is fixed in %s", name, v.Bug, v.Fix)
	case Unknown:
	}
	return fmt.Sprintf("%s may have %s (fixed upstream in %s and in later releases of older lines)", name, v.Bug, v.Fix)
}
