package kernel

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

// TestWriteback judges releases as nodes report them.
func TestWriteback(t *testing.T) {
	const debianBuild = "#1 SMP PREEMPT_DYNAMIC Debian %s (2026-11-16)"
	debian := func(uname, version string) Release {
		return Release{Uname: uname, Build: strings.Replace(debianBuild, "%s", version, 1), OS: "debian"}
	}
	of := func(uname, os string) Release { return Release{Uname: uname, Build: "#1 SMP PREEMPT_DYNAMIC", OS: os} }
	for _, tt := range []struct {
		release Release
		state   State
		vendor  string
		kernel  string
		bug     string
		fix     string
	}{
		// Debian's release is the same throughout a line; the package's version decides.
		{debian("6.1.0-50-cloud-amd64", "6.1.176-1"), Affected, "Debian", "6.1.176", "CVE-2026-64378", "6.1.178"},
		{debian("6.1.0-56-cloud-amd64", "6.1.192-2"), Fixed, "Debian", "6.1.192", "", ""},
		{debian("6.12.107+deb13-cloud-amd64", "6.12.107-1"), Fixed, "Debian", "6.12.107", "", ""},
		{debian("6.12.41+deb13-amd64", "6.12.41-1~bpo12+1"), Affected, "Debian", "6.12.41", "CVE-2026-64378", "6.12.96"},
		{debian("7.2.13+deb14-cloud-amd64", "7.2.13-1"), Fixed, "Debian", "7.2.13", "", ""},
		{debian("6.1.0-99-amd64", "unreadable"), Unknown, "Debian", "6.1.0-99-amd64", "CVE-2026-64378", "7.2.0"},

		{Release{Uname: "6.8.0-45-generic", Build: "#45-Ubuntu SMP PREEMPT_DYNAMIC", OS: "ubuntu"}, Unknown, "Ubuntu", "6.8.0-45-generic", "CVE-2026-64378", "7.2.0"},
		{Release{Uname: "7.2.0-12-generic", Build: "#12-Ubuntu SMP PREEMPT_DYNAMIC", OS: "ubuntu"}, Fixed, "Ubuntu", "7.2.0", "", ""},
		{of("5.14.0-503.el9.x86_64", "rhel"), Unknown, "Red Hat Enterprise Linux", "5.14.0-503.el9.x86_64", "CVE-2026-64378", "7.2.0"},
		{of("4.18.0-553.el8_10.x86_64", "rocky"), Unknown, "Red Hat Enterprise Linux", "4.18.0-553.el8_10.x86_64", "CVE-2026-64378", "7.2.0"},
		{of("6.1.177-224.371.amzn2023.x86_64", "amzn"), Affected, "Amazon Linux", "6.1.177", "CVE-2026-64378", "6.1.178"},
		{of("6.18.39-79.141.amzn2023.x86_64", "amzn"), Fixed, "Amazon Linux", "6.18.39", "", ""},
		{of("5.10.260-250.1.amzn2.x86_64", "amzn"), Affected, "Amazon Linux", "5.10.260", "CVE-2026-64378", "5.10.261"},
		{of("6.18.38-talos", "talos"), Affected, "Talos", "6.18.38", "CVE-2026-64378", "6.18.39"},
		{of("6.18.63-talos", "talos"), Fixed, "Talos", "6.18.63", "", ""},
		{of("6.6.145-flatcar", "flatcar"), Fixed, "Flatcar", "6.6.145", "", ""},
		{of("6.12.94+", "cos"), Affected, "Container-Optimized OS", "6.12.94", "CVE-2026-64378", "6.12.96"},
		{of("6.12.96+", "cos"), Fixed, "Container-Optimized OS", "6.12.96", "", ""},
		{of("6.12.96+", "gentoo"), Unknown, "", "6.12.96+", "CVE-2026-64378", "7.2.0"},
		{of("6.18.48", "bottlerocket"), Fixed, "Bottlerocket", "6.18.48", "", ""},
		{of("5.15.202", "bottlerocket"), Affected, "Bottlerocket", "5.15.202", "CVE-2026-64378", "7.2.0"},

		// Upstream's stable lines, and those that ended without the correction.
		{of("5.10.261", ""), Fixed, "upstream", "5.10.261", "", ""},
		{of("6.6.144", ""), Affected, "upstream", "6.6.144", "CVE-2026-64378", "6.6.145"},
		{of("6.19.14", ""), Affected, "upstream", "6.19.14", "CVE-2026-64378", "7.2.0"},
		{of("7.0.13", ""), Affected, "upstream", "7.0.13", "CVE-2026-64378", "7.2.0"},
		{of("7.1.3", ""), Affected, "upstream", "7.1.3", "CVE-2026-64378", "7.1.4"},
		{of("7.1.4", ""), Fixed, "upstream", "7.1.4", "", ""},
		{of("7.2.0-rc1", ""), Fixed, "", "7.2.0", "", ""},
		{of("8.0.0-custom", ""), Fixed, "", "8.0.0", "", ""},
		{of("6.18.44-custom", ""), Unknown, "", "6.18.44-custom", "CVE-2026-64378", "7.2.0"},
		{of("not a kernel", ""), Unknown, "", "not a kernel", "CVE-2026-64378", "7.2.0"},
		{Release{}, Unknown, "", "", "CVE-2026-64378", "7.2.0"},
	} {
		v := tt.release.Writeback()
		if v.State != tt.state || v.Vendor != tt.vendor || v.Kernel != tt.kernel || v.Bug != tt.bug || v.Fix != tt.fix {
			t.Errorf("%+v:\ngot  %+v\nwant %v, %q, %q, %q, %q", tt.release, v, tt.state, tt.vendor, tt.kernel, tt.bug, tt.fix)
		}
	}
}

// TestBugs compares each bug with its record, by itself.
func TestBugs(t *testing.T) {
	byID := map[string]bug{}
	for _, b := range writebackBugs() {
		byID[b.id] = b
	}
	for _, tt := range []struct {
		id  string
		v   version
		has bool
	}{
		{"CVE-2026-64378", version{4, 4, 300}, false},
		{"CVE-2026-64378", version{4, 5, 0}, true},
		{"CVE-2026-64378", version{6, 1, 177}, true},
		{"CVE-2026-64378", version{6, 1, 178}, false},
		{"CVE-2026-64378", version{6, 16, 99}, true},
		{"CVE-2025-39866", version{5, 15, 191}, true},
		{"CVE-2025-39866", version{5, 15, 192}, false},
		{"CVE-2025-39866", version{6, 16, 5}, true},
		{"CVE-2025-39866", version{6, 17, 0}, false},
		{"CVE-2026-31703", version{6, 17, 0}, false},
		{"CVE-2026-31703", version{6, 18, 24}, true},
		{"CVE-2026-31703", version{6, 18, 25}, false},
		{"CVE-2026-31703", version{6, 19, 0}, true},
		{"CVE-2026-31703", version{7, 0, 2}, false},
	} {
		b, ok := byID[tt.id]
		if !ok {
			t.Fatalf("no bug %s", tt.id)
		}
		if has, _ := b.in(tt.v); has != tt.has {
			t.Errorf("%s in %s: got %v, want %v", tt.id, tt.v, has, tt.has)
		}
	}
}

func TestVerdictString(t *testing.T) {
	for _, tt := range []struct {
		release Release
		want    string
	}{
		{Release{Uname: "6.18.38-talos"}, "Talos kernel 6.18.38 has CVE-2026-64378, which is fixed in 6.18.39"},
		{Release{Uname: "6.18.39-talos"}, "Talos kernel 6.18.39 has the corrections of all known bugs"},
		{
			Release{Uname: "5.14.0-503.el9.x86_64"},
			"Red Hat Enterprise Linux kernel 5.14.0-503.el9.x86_64 may have CVE-2026-64378 (fixed upstream in 7.2.0 and in later releases of older lines)",
		},
	} {
		if got := tt.release.Writeback().String(); got != tt.want {
			t.Errorf("got  %q\nwant %q", got, tt.want)
		}
	}
}

func TestRead(t *testing.T) {
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	proc := fstest.MapFS{
		"sys/kernel/osrelease": file("6.1.0-56-cloud-amd64\n"),
		"sys/kernel/version":   file("#1 SMP PREEMPT_DYNAMIC Debian 6.1.192-2 (2026-11-16)\n"),
	}
	host := fstest.MapFS{
		"usr/lib/os-release": file("PRETTY_NAME=\"Debian\"\nVERSION_ID=\"13\"\nID=\"debian\"\n"),
	}
	want := Release{Uname: "6.1.0-56-cloud-amd64", Build: "#1 SMP PREEMPT_DYNAMIC Debian 6.1.192-2 (2026-11-16)", OS: "debian"}
	got, err := Read(proc, host)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}

	delete(host, "usr/lib/os-release")
	if got, err := Read(proc, host); err != nil || got.OS != "" {
		t.Errorf("without os-release: got %+v, %v", got, err)
	}
	delete(proc, "sys/kernel/version")
	if _, err := Read(proc, host); err == nil || !strings.Contains(err.Error(), "kernel's version") {
		t.Errorf("without a version: got error %v", err)
	}
	if _, err := Read(fstest.MapFS{}, host); err == nil {
		t.Error("without procfs: no error")
	}
}

// FuzzWriteback checks that a release leaves no verdict without its reason.
func FuzzWriteback(f *testing.F) {
	f.Add("6.1.0-56-cloud-amd64", "#1 SMP Debian 6.1.192-2 (2026-11-16)", "debian")
	f.Add("6.12.94+", "#1 SMP", "cos")
	f.Add("5.14.0-503.el9.x86_64", "#1 SMP", "rhel")
	f.Add("99999999999999999999.1.1", "#1-Ubuntu SMP Debian ", "")
	f.Fuzz(func(t *testing.T, uname, build, os string) {
		v := Release{Uname: uname, Build: build, OS: os}.Writeback()
		if v.State != Fixed && (v.Bug == "" || v.Fix == "") {
			t.Errorf("%+v names no bug or no correction", v)
		}
		if v.String() == "" {
			t.Error("no text")
		}
	})
}
