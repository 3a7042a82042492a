package inspect

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio/storage"
	"github.com/nri-blkio/nri-blkio/internal/fakenode"
)

// TestSharedDisksOf verifies that the report names the devices on each disk with a limit in force, once.
func TestSharedDisksOf(t *testing.T) {
	sys := storage.NewSysfs(fakenode.Sysfs())
	limit := func(disk, state string) Value { return Value{Disk: disk, Key: "wbps", State: state} }
	got, err := SharedDisksOf([]Value{
		limit("sdc", ValueDrift), limit("sdc", ValueOK), limit("dm-1", ValueOK), {Key: "weight"},
	}, sys)
	if d := cmp.Diff([]SharedDisk{{Disk: "sdc", Above: []string{"md0"}}}, got); d != "" || err != nil {
		t.Errorf("%v; -want +got:\n%s", err, d)
	}
	if s := got[0].String(); s != "a limit on sdc also applies to md0, which is stored on it" {
		t.Error(s)
	}
	for name, row := range map[string]Value{
		"observed": limit("sdc", ValueObserved), "cleared": limit("sdc", ValueCleared), "of no disk": {Key: "weight", State: ValueOK},
	} {
		if got, err := SharedDisksOf([]Value{row}, sys); err != nil || len(got) > 0 {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}
