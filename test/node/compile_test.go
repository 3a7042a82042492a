package node

import (
	"slices"
	"testing"
)

// TestLostOptions verifies that an option which the kernel's configuration did not take is found.
func TestLostOptions(t *testing.T) {
	const want = "# Why.\nCONFIG_A=y\n# CONFIG_B is not set\nCONFIG_C=64\n"
	for _, tt := range []struct {
		config string
		lost   []string
	}{
		{"CONFIG_A=y\n# CONFIG_B is not set\nCONFIG_C=64\n", nil},
		{"CONFIG_A=y\nCONFIG_BB=y\nCONFIG_C=64\n", nil},
		{"# CONFIG_A is not set\nCONFIG_B=m\nCONFIG_C=8\n", []string{"CONFIG_A=y", "# CONFIG_B is not set", "CONFIG_C=64"}},
		{"", []string{"CONFIG_A=y", "CONFIG_C=64"}},
	} {
		if got := lostOptions(want, tt.config); !slices.Equal(got, tt.lost) {
			t.Errorf("of %q got %q, want %q", tt.config, got, tt.lost)
		}
	}
}

// TestCompiledKernels verifies that what is compiled together is one artifact, which has a part for each kernel.
func TestCompiledKernels(t *testing.T) {
	nothrottle := kernelArtifact(Config{Kernel: "6.12-nothrottle"}, aptSource{})
	iolatency := kernelArtifact(Config{Kernel: "6.12-iolatency"}, aptSource{})
	if nothrottle.key != iolatency.key || nothrottle.name != iolatency.name || nothrottle.part == iolatency.part {
		t.Errorf("%+v and %+v, want one artifact with two parts", nothrottle, iolatency)
	}
	for name := range kernelOptions {
		if !slices.Contains(Choices("kernel"), name) {
			t.Errorf("no node can have kernel %s", name)
		}
	}
}
