package annotation

import (
	"path"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestDiskTarget covers valid and invalid targets by the name of a disk.
func TestDiskTarget(t *testing.T) {
	const example = "write for example disk:nvme*, or disk:/dev/disk/by-id/*SSD*"
	for _, tt := range []struct{ word, err string }{
		{"disk:sda", ""},
		{"disk:nvme*", ""},
		{"disk:sd[a-c]?", ""},
		{"disk:cciss!c0d0", ""},
		{"disk:/dev/sda", ""},
		{"disk:/dev/disk/by-id/*SSD*", ""},
		{"disk:/dev/cciss/c0d?", ""},
		{"disk:/d*/sda", ""},
		{"disk:", "missing name after disk: (" + example + ")"},
		{"disk:sd[a", `invalid pattern "sd[a" (write * for any characters, ? for one; ` + example + ")"},
		{`disk:sd\`, `invalid pattern "sd\\" (write * for any characters, ? for one; ` + example + ")"},
		{"disk:mapper/vg-lv", `the kernel name of a disk has no /: "mapper/vg-lv" (write "disk:/dev/mapper/vg-lv")`},
		{"disk:/dev//sda", `the path "/dev//sda" is not clean (write "disk:/dev/sda")`},
		{"disk:/dev/x/../sda", `the path "/dev/x/../sda" is not clean (write "disk:/dev/sda")`},
		{"disk:/data", `"/data" is not a path below /dev (write the path of a mount without disk:, or disk:nvme*, or disk:/dev/disk/by-id/*SSD*)`},
		{"disk:/dev", `"/dev" is not a path below /dev (write the path of a mount without disk:, or disk:nvme*, or disk:/dev/disk/by-id/*SSD*)`},
		{"dsik:nvme*", `unknown target "dsik:nvme*" (did you mean "disk:nvme*"?)`},
		{"disks:sda", `unknown target "disks:sda" (did you mean "disk:sda"?)`},
	} {
		target, p := parsePolicyTarget(tt.word)
		got := ""
		if p != nil {
			got = p.String()
		}
		if got != tt.err {
			t.Errorf("%s:\n got %s\nwant %s", tt.word, got, tt.err)
		}
		if p == nil && (target.Kind != TargetDisk || target.Glob != tt.word[len("disk:"):] || target.Rank() <= TargetStar || target.Rank() >= TargetRootfs) {
			t.Errorf("%s: %+v", tt.word, target)
		}
	}
}

func TestMatchesDisk(t *testing.T) {
	links := []string{"/dev/disk/by-id/ata-Some_SSD_1", "/dev/disk/by-path/pci-0"}
	for _, tt := range []struct {
		glob, name string
		want       bool
	}{
		{"sda", "sda", true},
		{"sd[a-z]", "sdb", true},
		{"sd?", "sdaa", false},
		{"sd*", "sdaa", true},
		{"*", "nvme0n1", true},
		{"nvme*", "sda", false},
		{"SDA", "sda", false},
		{"/dev/sda", "sda", true},
		{"/dev/*", "sda", true},
		{"/*/sda", "sda", true},
		{"/dev/*", "cciss!c0d0", false},
		{"/dev/cciss/*", "cciss!c0d0", true},
		{"cciss*", "cciss!c0d0", true},
		{"/dev/disk/by-id/*SSD*", "sda", true},
		{"/dev/disk/by-id/*HDD*", "sda", false},
		{"/dev/*/*SSD*", "sda", false},
		{"/dev/*/*/*SSD*", "sda", true},
		{"ata-Some_SSD_1", "sda", false},
	} {
		target := Target{Kind: TargetDisk, Glob: tt.glob}
		if got := target.MatchesDisk(tt.name, links); got != tt.want {
			t.Errorf("%s and %s: %t", tt.glob, tt.name, got)
		}
	}
}

// TestDiskEntries verifies that a class may have entries with the same glob, but not with the same key.
func TestDiskEntries(t *testing.T) {
	l, problems := ParseLimits("classes.a", []string{"disk:sd* wbps=1Mi", "disk:sda rbps=2Mi", "disk:sd* rbps=3Mi", "disk:sd* riops=5 rbps=4Mi", "* riops=9"})
	want := []string{"", "", "", `duplicate target "disk:sd*", first in entry 3 (write all its limits into one entry)`, ""}
	got := make([]string, len(problems))
	for i, p := range problems {
		if p != nil {
			got[i] = p.String()
		}
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	if targets := l.Targets(); !l.HasStar() || !targets.HasStar() || !targets.Disks {
		t.Errorf("%+v", targets)
	}
	only, _ := ParseLimits("classes.a", []string{"disk:sd* wbps=1Mi"})
	if !only.HasStar() || !only.Targets().Covers(Targets{Widest: Star, Disks: true}) {
		t.Error("disk: alone does not ask for all disks")
	}
}

// FuzzPolicyTarget verifies that an element of a class is refused in one short line, or that its pattern can be
// matched. The kernel name alone and the same name as a path match the same disks.
func FuzzPolicyTarget(f *testing.F) {
	for _, seed := range []string{"disk:sd[a-z] wbps=1Mi", "disk:/dev/disk/by-id/*SSD* rbps=1Mi", `disk:\* wiops=8`, "disk: wbps=1Mi", "dsik:a wbps=1", "* wbps=1Mi", "/data wbps=1Mi"} {
		f.Add(seed, "sda")
	}
	f.Fuzz(func(t *testing.T, element, name string) {
		l, problems := ParseLimits("classes.a.limits", []string{element})
		if p := problems[0]; p != nil {
			checkLine(t, (&Error{Identity: Identity{From: Origin{Annotation: "classes.a.limits"}, Entry: 1, Text: element}, Cause: p.Cause, Hint: p.Hint}).Error())
			return
		}
		target := l.Entries[0].Target
		if target.Kind != TargetDisk {
			return
		}
		if _, err := path.Match(target.Glob, name); err != nil || target.Glob == "" || path.Clean(target.Glob) != target.Glob {
			t.Errorf("%q: %v", target.Glob, err)
		}
		if strings.ContainsAny(target.Glob, "/!") || strings.ContainsAny(name, "/!") || strings.ContainsAny(target.Glob, "[") {
			return
		}
		asPath := Target{Kind: TargetDisk, Glob: "/dev/" + target.Glob}
		if target.MatchesDisk(name, nil) != asPath.MatchesDisk(name, nil) {
			t.Errorf("%q and %q: not the same as %q", target.Glob, name, asPath.Glob)
		}
	})
}
