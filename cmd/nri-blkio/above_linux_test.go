package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/plugin/inspect"
)

// TestSharedDisks: status names the devices on each disk with a limit in force, once.
func TestSharedDisks(t *testing.T) {
	root := t.TempDir()
	if err := fakeHost(root); err != nil {
		t.Fatal(err)
	}
	a := &app{opts: options{hostRoot: root}}
	limit := func(disk, state string) statusRow { return statusRow{Disk: disk, Key: "wbps", State: state} }
	got, err := a.sharedDisks([]statusRow{
		limit("vdb", stateDrift), limit("vdb", stateOK), limit("vda", stateOK), limit("dm-0", stateOK), {Key: "weight"},
	})
	if d := cmp.Diff([]inspect.SharedDisk{{Disk: "vdb", Above: []string{"dm-0"}}}, got); d != "" || err != nil {
		t.Errorf("%v; -want +got:\n%s", err, d)
	}
	if s := got[0].String(); s != "a limit on vdb holds for dm-0 as well, which is stored on it" {
		t.Error(s)
	}
	for name, row := range map[string]statusRow{
		"observed": limit("vdb", stateObserved), "cleared": limit("vdb", stateCleared), "of no disk": {Key: "weight", State: stateOK},
	} {
		if got, err := a.sharedDisks([]statusRow{row}); err != nil || len(got) > 0 {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}
