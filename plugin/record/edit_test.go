package record

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/plugin/podfacts"
)

// longEdit returns the largest edit.
func longEdit() *podfacts.Edit {
	e := &podfacts.Edit{Sandbox: "s1", Annotations: map[string]string{"a": ""}}
	e.Annotations["a"] = strings.Repeat("x", MaxEdit-e.Size())
	return e
}

// TestEditStays verifies that a record has its edit, however small the room is: a restarted process would decide by the
// annotations before.
func TestEditStays(t *testing.T) {
	r := large(1, "*")
	r.Kind, r.Edit = KindPod, longEdit()
	for _, room := range []int{MaxSize, Room(30, MaxEdit), 0} {
		data, err := r.Marshal(room)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(r.Edit, parse(t, string(data)).Edit); diff != "" {
			t.Errorf("room %d: -want +got:\n%.400s", room, diff)
		}
	}
	r.Edit.Annotations["b"] = strings.Repeat("x", MaxSize-MaxEdit)
	if data, err := r.Marshal(0); !errors.Is(err, ErrTooLarge) {
		t.Errorf("%d bytes, %v", len(data), err)
	}
}

// TestSizeOfEdit verifies that the size of an edit is what it takes in a record, and that a pod's directory has room for
// the longest one with the other records.
func TestSizeOfEdit(t *testing.T) {
	r := &Record{Kind: KindPod}
	before := len(marshal(t, r))
	r.Edit = longEdit()
	if got := len(marshal(t, r)) - before; got != r.Edit.Size() || got != MaxEdit {
		t.Errorf("it takes %d bytes, and its size is %d", got, r.Edit.Size())
	}
	if (*podfacts.Edit)(nil).Size() != 0 {
		t.Error("no edit has a size")
	}
	const kernfs = 128 << 10 // KERNFS_USER_XATTR_SIZE_LIMIT
	for _, containers := range []int{0, 1, 5, 10} {
		room := Room(containers, MaxEdit)
		all := (1+containers)*(room+len(Xattr)+70) + MaxEdit
		if all > kernfs || room < 6<<10 {
			t.Errorf("%d containers have %d bytes each, %d in all", containers, room, all)
		}
	}
}
