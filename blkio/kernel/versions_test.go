package kernel

import (
	"errors"
	"io/fs"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// TestBugTable verifies that the table of bugs is consistent. With a mistake in it, files are moved on a kernel
// that crashes, or are never moved.
func TestBugTable(t *testing.T) {
	bugs := writebackBugs()
	seen := map[string]bool{}
	for _, b := range bugs {
		if seen[b.id] || !strings.HasPrefix(b.id, "CVE-") {
			t.Errorf("%s: its ID is wrong", b.id)
		}
		seen[b.id] = true
		if b.introduced.compare(b.mainline) >= 0 {
			t.Errorf("%s is introduced in %v, and never in %v", b.id, b.introduced, b.mainline)
		}
		if !slices.IsSortedFunc(b.fixed, version.compare) {
			t.Errorf("%s: the corrected releases are not sorted", b.id)
		}
		for i, f := range b.fixed {
			if f.compare(b.introduced) < 0 || f.compare(b.mainline) >= 0 {
				t.Errorf("%s is fixed in %v, which is no release with the bug", b.id, f)
			}
			if i > 0 && f.sameLine(b.fixed[i-1]) {
				t.Errorf("%s is fixed twice in the line of %v", b.id, f)
			}
		}
		// The verdict of a kernel without a known version goes by the first bug.
		if bugs[0].mainline.compare(b.mainline) < 0 {
			t.Errorf("%s is in %v, and %s is not", b.id, bugs[0].mainline, bugs[0].id)
		}
	}
}

// TestCorrectionsStay verifies that a release of a stable line that follows a corrected one is corrected as
// well. The release which a verdict names as corrected is corrected.
func TestCorrectionsStay(t *testing.T) {
	lines := [][2]int{{4, 2}, {4, 19}, {5, 4}, {5, 10}, {5, 15}, {6, 1}, {6, 6}, {6, 12}, {6, 16}, {6, 18}, {7, 0}, {7, 1}, {7, 2}, {8, 0}}
	for _, line := range lines {
		corrected := false
		for patch := range 400 {
			v := version{line[0], line[1], patch}
			verdict := Release{Uname: v.String()}.Writeback()
			if corrected && !verdict.Corrected() {
				t.Errorf("%v has %s, and a release before it has no bug", v, verdict.Bug)
			}
			corrected = verdict.Corrected()
			if verdict.State != Affected {
				continue
			}
			fix, rest, ok := parseVersion(verdict.Fix)
			if !ok || rest != "" || v.compare(fix) >= 0 {
				t.Errorf("%v has %s, which is fixed in %s", v, verdict.Bug, verdict.Fix)
			}
			for _, b := range writebackBugs() {
				if has, _ := b.in(fix); b.id == verdict.Bug && has {
					t.Errorf("%v has %s, and %s as well", v, verdict.Bug, verdict.Fix)
				}
			}
		}
		if newest := (version{line[0], line[1], 399}); !corrected && newest.compare(version{7, 2, 0}) >= 0 {
			t.Errorf("%v is not corrected", newest)
		}
	}
}

// TestParseVersion has the beginnings of releases.
func TestParseVersion(t *testing.T) {
	for _, tt := range []struct {
		in   string
		want version
		rest string
		ok   bool
	}{
		{"6.1.192", version{6, 1, 192}, "", true},
		{"6.1", version{6, 1, 0}, "", true},
		{"6.1-rc3", version{6, 1, 0}, "-rc3", true},
		{"6.1.0-56-cloud-amd64", version{6, 1, 0}, "-56-cloud-amd64", true},
		{"6.12.94+", version{6, 12, 94}, "+", true},
		{"6.1.2.3", version{6, 1, 2}, ".3", true},
		{"06.01.002", version{6, 1, 2}, "", true},
		{"6", version{}, "6", false},
		{"6.", version{}, "6.", false},
		{"6.x", version{}, "6.x", false},
		{"6.1.", version{}, "6.1.", false},
		{"6.1.x", version{}, "6.1.x", false},
		{"", version{}, "", false},
		{"v6.1.2", version{}, "v6.1.2", false},
		{"-6.1.2", version{}, "-6.1.2", false},
		{" 6.1.2", version{}, " 6.1.2", false},
		{"6.1.99999999999999999999", version{}, "6.1.99999999999999999999", false},
	} {
		v, rest, ok := parseVersion(tt.in)
		if v != tt.want || rest != tt.rest || ok != tt.ok {
			t.Errorf("%q: %v, %q, %v, want %v, %q, %v", tt.in, v, rest, ok, tt.want, tt.rest, tt.ok)
		}
	}
}

// TestVersionOrder verifies that versions are ordered as numbers, not as text, and that
// String is the inverse of parseVersion.
func TestVersionOrder(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	number := func(v version) int { return v.major<<40 + v.minor<<20 + v.patch }
	for range 2000 {
		v := version{rng.IntN(12), rng.IntN(120), rng.IntN(400)}
		w := version{rng.IntN(12), rng.IntN(120), rng.IntN(400)}
		if rng.IntN(3) == 0 {
			w.major = v.major
		}
		if rng.IntN(3) == 0 {
			w.minor = v.minor
		}
		if (v.compare(w) < 0) != (number(v) < number(w)) || v.sameLine(w) != (v.major == w.major && v.minor == w.minor) {
			t.Errorf("%v and %v: compare is %v, the same line %v", v, w, v.compare(w), v.sameLine(w))
		}
		if again, rest, ok := parseVersion(v.String()); again != v || rest != "" || !ok {
			t.Errorf("%v is parsed as %v", v, again)
		}
	}
	if (version{6, 9, 0}).compare(version{6, 10, 0}) >= 0 {
		t.Error("6.9 is not before 6.10")
	}
}

// TestOSID has os-release files as os-release(5) allows them.
func TestOSID(t *testing.T) {
	for in, want := range map[string]string{
		"ID=debian\n":                          "debian",
		"ID=\"debian\"":                        "debian",
		"ID='cos'\n":                           "cos",
		"  ID=cos  \n":                         "cos",
		"VERSION_ID=13\nID_LIKE=debian\n":      "",
		"# ID=other\nID=talos\n":               "talos",
		"PRETTY_NAME=\"ID=evil\"\nID=ubuntu\n": "ubuntu",
		"ID=one\nID=two\n":                     "one",
		"ID=\n":                                "",
		"ID=cos\r\n":                           "cos",
		"":                                     "",
		"\x00\xff":                             "",
	} {
		if got := osID(in); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}

// brokenFS is a file system that fails for one file.
type brokenFS struct {
	fs.FS
	name string
}

var errBroken = errors.New("input/output error")

func (b brokenFS) Open(name string) (fs.File, error) {
	if name == b.name {
		return nil, &fs.PathError{Op: "open", Path: name, Err: errBroken}
	}
	return b.FS.Open(name)
}

// TestReadErrors verifies that an unreadable file is an error, and a missing os-release,
// as in minimal images, is none.
func TestReadErrors(t *testing.T) {
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	proc := fstest.MapFS{"sys/kernel/osrelease": file("6.12.94+\n"), "sys/kernel/version": file("#1 SMP\n")}
	host := fstest.MapFS{"etc/os-release": file("ID=cos\n")}
	got, err := Read(proc, host)
	if err != nil || got.OS != "cos" || got.Writeback().Vendor != "Container-Optimized OS" {
		t.Errorf("with /etc/os-release alone: %+v, %v", got, err)
	}
	for _, tt := range []struct {
		proc, host fs.FS
		want       string
	}{
		{brokenFS{proc, "sys/kernel/osrelease"}, host, "read the kernel's release: open sys/kernel/osrelease: input/output error"},
		{brokenFS{proc, "sys/kernel/version"}, host, "read the kernel's version: open sys/kernel/version: input/output error"},
		{proc, brokenFS{host, "usr/lib/os-release"}, "read the node's os-release: open usr/lib/os-release: input/output error"},
		{proc, brokenFS{host, "etc/os-release"}, "read the node's os-release: open etc/os-release: input/output error"},
	} {
		got, err := Read(tt.proc, tt.host)
		if !errors.Is(err, errBroken) || err.Error() != tt.want {
			t.Errorf("got %v, want %s", err, tt.want)
		}
		if got.OS != "" {
			t.Errorf("an OS beside the error %v", err)
		}
	}
}

// TestUnknownIsNotCorrected verifies that no release counts as corrected by mistake. It tries releases that
// resemble another vendor's, or that have been cut off or forged in part.
func TestUnknownIsNotCorrected(t *testing.T) {
	for _, r := range []Release{
		{},
		{Uname: "7"},
		{Uname: "7.1"},
		{Uname: "6.1.192-custom"},
		{Uname: "6.1.192+"},
		{Uname: "6.1.192+", OS: "COS"},
		{Uname: "6.18.39-talos-custom"},
		{Uname: "6.6.145-flatcar.1"},
		{Uname: "6.1.0-56-amd64", Build: "#1 SMP Debian"},
		{Uname: "6.1.0-56-amd64", Build: "#1 SMP debian 6.1.192-2"},
		{Uname: "6.1.0-56-amd64", Build: "#1 SMP Debian -2 (2026-11-16)"},
		{Uname: "6.8.0-90-generic", Build: "#91-Ubuntu SMP"},
		{Uname: "6.12.0-200.el10_2.x86_64"},
		{Uname: "amzn 6.18.39.amzn2023"},
	} {
		if v := r.Writeback(); v.Corrected() || v.Bug == "" || v.Fix == "" {
			t.Errorf("%+v: %+v", r, v)
		}
	}
	if (Verdict{}).Corrected() {
		t.Error("no verdict counts as corrected")
	}
}

// TestVendors verifies that each vendor of the table names a source, and that at most one
// recognises a release: their order decides nothing but for upstream's.
func TestVendors(t *testing.T) {
	releases := []Release{
		{Uname: "6.1.0-56-amd64", Build: "#1 SMP Debian 6.1.192-2 (2026-11-16)", OS: "debian"},
		{Uname: "6.8.0-45-generic", Build: "#45-Ubuntu SMP", OS: "ubuntu"},
		{Uname: "5.14.0-503.el9.x86_64"},
		{Uname: "6.1.177-224.371.amzn2023.x86_64"},
		{Uname: "6.18.38-talos"},
		{Uname: "6.6.145-flatcar"},
		{Uname: "6.12.94+", OS: "cos"},
		{Uname: "6.12.94", OS: "bottlerocket"},
	}
	recognised := map[string]int{}
	for _, r := range releases {
		var names []string
		for _, v := range vendors() {
			if _, _, is := v.base(r); is && v.name != "upstream" {
				names = append(names, v.name)
				recognised[v.name]++
			}
		}
		if len(names) != 1 {
			t.Errorf("%+v is of %v", r, names)
		}
	}
	for _, v := range vendors() {
		if v.name != "upstream" && recognised[v.name] != 1 {
			t.Errorf("%s: recognised %d times", v.name, recognised[v.name])
		}
	}
}
