package calibrate

import (
	"testing"
)

// TestLoopOnNoDisk: there is no disk to calibrate instead if the file of a loop device is in memory.
func TestLoopOnNoDisk(t *testing.T) {
	n, sys := nodeWith(t, nil)
	sys.add("loop1", "7:1", "size=41943040", "mq/0/cpu_list=0", "loop/backing_file=/srv/mem/x")
	const want = "loop1 is a loop device, and its file is not on a known disk"
	if d, err := Find(t.Context(), n.Storage, n.Sysfs, "loop1"); err == nil || err.Error() != want {
		t.Errorf("%+v, %v, want %s", d, err, want)
	}
}
