package record

import (
	"slices"
	"testing"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy"
)

func TestWithExits(t *testing.T) {
	entry := func(id uint64, lines uint32) Exit {
		e := Exit{Container: "c", CgroupIDs: []uint64{id}}
		for i := range lines {
			e.Limits = append(e.Limits, set(blkio.Wbps, blkio.Dev{Major: 254, Minor: 1000000 + i}, 1<<20, policy.Source{}))
		}
		return e
	}
	ids := func(list []Exit) (out []uint64) {
		for _, e := range list {
			out = append(out, e.CgroupIDs[0])
		}
		return out
	}
	var list []Exit
	for i := range uint64(3 * MaxExits) {
		list = WithExits(list, []Exit{entry(i, 1)})
	}
	if got := ids(list); len(got) != MaxExits || got[0] != 2*MaxExits || got[MaxExits-1] != 3*MaxExits-1 {
		t.Errorf("kept %v", got)
	}
	again := WithExits(list, []Exit{entry(40, 0)})
	if got := ids(again); len(got) != MaxExits || got[MaxExits-1] != 40 || len(list[8].Limits) != 1 {
		t.Errorf("one that ended again: %v", got)
	}
	if got := ids(WithExits(list, []Exit{entry(99, 250)})); len(got) >= MaxExits || got[len(got)-1] != 99 {
		t.Errorf("kept beside a large one: %v", got)
	}
	if got := WithExits(list, []Exit{entry(99, 1000)}); len(got) != 0 {
		t.Errorf("kept one that is too large, and %d", len(got)-1)
	}
}

func TestWithEnded(t *testing.T) {
	seen := []policy.Container{{Name: "main"}}
	got := WithEnded(seen, []Exit{{Container: "init"}, {Container: "main"}, {Container: "init"}})
	names := func(c policy.Container) bool { return c.Name == "init" && c.Stage == policy.Ended }
	if len(got) != 2 || got[0].Stage == policy.Ended || !slices.ContainsFunc(got, names) {
		t.Errorf("%+v", got)
	}
}
