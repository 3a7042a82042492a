package check

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// sdaDev is the disk of all paths of testChecker.
var sdaDev = blkio.Dev{Major: 8}

// notes returns the notes about a pod with limits of each container.
func notes(t *testing.T, c *Checker, limits string) []string {
	t.Helper()
	r := c.Pod(t.Context(), podOf(map[string]string{limitsOf + "containers": limits}, "a"))
	if len(r.Errors) > 0 {
		t.Fatal(r.Errors)
	}
	return r.Notes
}

// TestOperations verifies the operations per second that a limit of bytes allows.
func TestOperations(t *testing.T) {
	for limits, want := range map[string][]string{
		"rootfs wbps=10Mi":                    {"wbps=10Mi is 2560 operations/s of 4K, 640 of 16K, 160 of 64K or 10 of 1M"},
		"rootfs rbps=10Mi riops=200":          {"rbps=10Mi riops=200 is 200 operations/s of 4K, 200 of 16K, 160 of 64K or 10 of 1M"},
		"rootfs wbps=64Ki":                    {"wbps=64Ki is 16 operations/s of 4K, 4 of 16K, 1 of 64K or 0.062 of 1M"},
		"rootfs wiops=100 rbps=max":           nil,
		"rootfs wiops=100 wiops.burst=1k/60s": {"wiops.burst on sda: 54k above the limit in a whole burst, after 540 seconds without use"},
		"rootfs rbps=4Mi wbps=2Mi": {
			"rbps=4Mi is 1024 operations/s of 4K, 256 of 16K, 64 of 64K or 4 of 1M", "wbps=2Mi is 512 operations/s of 4K, 128 of 16K, 32 of 64K or 2 of 1M",
		},
	} {
		c := testChecker()
		c.Policy.Bursts[blkio.Wiops] = blkio.Max
		if d := cmp.Diff(want, notes(t, c, limits)); d != "" {
			t.Errorf("%s: -want +got:\n%s", limits, d)
		}
	}
}
