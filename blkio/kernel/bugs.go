// Package kernel identifies the running kernel, and reports whether it contains the
// corrections of known bugs.
//
// A correction leaves nothing to probe for. So this is the only package that compares
// versions. Only [Read] does I/O.
package kernel

import (
	"fmt"
	"strings"
)

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
