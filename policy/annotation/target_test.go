package annotation

import "testing"

// TestTarget verifies that a path and a volume are one rank, and messages show each as it is written.
func TestTarget(t *testing.T) {
	for _, tt := range []struct {
		word, name, where string
		rank              TargetKind
	}{
		{"*", "", `at ""`, TargetStar},
		{"rootfs", "", `at ""`, TargetRootfs},
		{"/a//b/", "/a/b", `at "/a/b"`, TargetPath},
		{`"/a \"b\" c"`, `/a "b" c`, `at "/a \"b\" c"`, TargetPath},
		{"@data", "@data", `of volume "data"`, TargetPath},
	} {
		target, p := parseTarget(tt.word)
		if p != nil || target.Rank() != tt.rank || target.Name() != tt.name || target.Where() != tt.where {
			t.Errorf("%s: %v, rank %d, %q, %q", tt.word, p, target.Rank(), target.Name(), target.Where())
		}
	}
}
