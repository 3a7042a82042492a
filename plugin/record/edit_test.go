package record

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/plugin/poddoc"
	"github.com/nri-blkio/nri-blkio/plugin/podfacts"
	"github.com/nri-blkio/nri-blkio/policy"
)

// maxEdit is the largest size of an edit, in bytes. A larger one could leave no room for the rest of the pod's record:
// the record is then too large, which is an error, and never written without the edit. A restarted process would fall
// back to the annotations before.
const maxEdit = 45 << 10

// longEdit returns the largest edit.
func longEdit() *podfacts.Edit {
	e := &podfacts.Edit{Sandbox: "s1", Annotations: map[string]string{"a": ""}}
	e.Annotations["a"] = strings.Repeat("x", maxEdit-e.Size())
	return e
}

// TestEditStays verifies that a record has its edit, however small the room is: a restarted process would decide by the
// annotations before.
func TestEditStays(t *testing.T) {
	r := large(1, "*")
	r.Kind, r.Edit = KindPod, longEdit()
	for _, room := range []int{MaxSize, Room(30, maxEdit), 0} {
		data, err := r.Marshal(room)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(r.Edit, parse(t, string(data)).Edit); diff != "" {
			t.Errorf("room %d: -want +got:\n%.400s", room, diff)
		}
	}
	r.Edit.Annotations["b"] = strings.Repeat("x", MaxSize-maxEdit)
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
	if got := len(marshal(t, r)) - before; got != r.Edit.Size() || got != maxEdit {
		t.Errorf("it takes %d bytes, and its size is %d", got, r.Edit.Size())
	}
	if (*podfacts.Edit)(nil).Size() != 0 {
		t.Error("no edit has a size")
	}
	const kernfs = 128 << 10 // KERNFS_USER_XATTR_SIZE_LIMIT
	for _, containers := range []int{0, 1, 5, 10} {
		room := Room(containers, maxEdit)
		all := (1+containers)*(room+len(Xattr)+70) + maxEdit
		if all > kernfs || room < 6<<10 {
			t.Errorf("%d containers have %d bytes each, %d in all", containers, room, all)
		}
	}
}

// TestEditFits verifies that the record of a pod has room for the largest edit that a document can have, with the labels
// that the runtime adds.
func TestEditFits(t *testing.T) {
	d := poddoc.Document{
		UID: "0f9bd3ce-7a4e-4b0c-9f52-8d1d5f1c2b3a",
		Facts: podfacts.Facts{
			Namespace:   "prod",
			Name:        "db-0",
			Annotations: map[string]string{"limits.blkio.noderesource.dev/containers": ""},
			Labels:      map[string]string{},
		},
	}
	size := func(of map[string]string) int {
		return (&podfacts.Edit{Annotations: of}).Size() - (&podfacts.Edit{}).Size()
	}
	d.Annotations["limits.blkio.noderesource.dev/containers"] = strings.Repeat("x", 28<<10-size(d.Annotations))
	for size(d.Labels) < 8<<10-100 {
		d.Labels[fmt.Sprintf("%063d", len(d.Labels))] = ""
	}
	d.Bound()
	if len(d.Omitted) > 0 {
		t.Fatalf("omitted: %v", d.Omitted)
	}
	for _, key := range []string{"namespace", "name", "uid"} {
		d.Labels["io.kubernetes.pod."+key] = strings.Repeat("x", 253)
	}
	ofNamespace := map[string]*string{"a": new(strings.Repeat("x", 2*policy.MaxNamespaceLabels))} // of two policies, while one follows the other
	e := podfacts.Edit{Sandbox: strings.Repeat("f", 64), Annotations: d.Annotations, Labels: d.Labels, NamespaceLabels: ofNamespace}
	if n := e.Size(); n > maxEdit || n < 40<<10 {
		t.Errorf("%d bytes (maximum %d)", n, maxEdit)
	}
}
