package record

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
)

// newTree returns a directory that stands for a cgroup tree, with the cgroups of a pod and
// of its container.
func newTree(t *testing.T) (h *cgroupfs.Hierarchy, pod, container cgroupfs.Cgroup, dir string) {
	t.Helper()
	dir = t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "kubepods/podu1/c1"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "cgroup.controllers"), []byte("io memory\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	h, err := cgroupfs.OpenTree(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	return h, h.Cgroup("kubepods/podu1"), h.Cgroup("kubepods/podu1/c1"), dir
}

func exampleOf(kind string) *Record {
	r := example()
	if r.Kind = kind; kind == KindContainer {
		r.Container = "db"
	}
	return r
}

// TestWriteAndRead verifies that the records of a pod and of its containers lie on the pod's
// directory, do not replace each other, and read back as they were written.
func TestWriteAndRead(t *testing.T) {
	h, pod, container, _ := newTree(t)
	for _, tt := range []struct {
		c    cgroupfs.Cgroup
		kind string
	}{{pod, KindPod}, {container, KindContainer}} {
		if got, err := Read(tt.c, tt.kind); got != nil || err != nil {
			t.Errorf("%s: %+v, %v before a write", tt.kind, got, err)
		}
		if err := Write(tt.c, exampleOf(tt.kind)); err != nil {
			t.Fatal(err)
		}
	}
	found := map[string]string{}
	err := h.Walk(Xattr, func(c cgroupfs.Cgroup, a cgroupfs.Attribute) error {
		r, err := ParseAttribute(a)
		if err == nil {
			found[c.Path()] = r.Kind
		}
		return err
	})
	want := map[string]string{"kubepods/podu1": KindPod, "kubepods/podu1/c1": KindContainer}
	if diff := cmp.Diff(want, found); diff != "" || err != nil {
		t.Errorf("a walk finds (-want, +got): %v\n%s", err, diff)
	}
	for c, kind := range map[cgroupfs.Cgroup]string{pod: KindPod, container: KindContainer} {
		got, err := Read(c, kind)
		if err != nil || !got.HasSettings(exampleOf(kind)) || got.Kind != kind {
			t.Errorf("%s: %+v, %v", kind, got, err)
		}
		for range 2 {
			if err := Remove(c, kind); err != nil {
				t.Error(err)
			}
		}
		if got, err := Read(c, kind); got != nil || err != nil {
			t.Errorf("%s: %+v, %v after its removal", kind, got, err)
		}
	}
}

// TestReadRemoved verifies that a record whose container was removed is none, though the
// pod's directory, which it lies on, is there still.
func TestReadRemoved(t *testing.T) {
	_, pod, container, dir := newTree(t)
	for c, kind := range map[cgroupfs.Cgroup]string{pod: KindPod, container: KindContainer} {
		if err := Write(c, exampleOf(kind)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Remove(filepath.Join(dir, "kubepods/podu1/c1")); err != nil {
		t.Fatal(err)
	}
	if got, err := Read(container, KindContainer); got != nil || !errors.Is(err, blkio.ErrGone) {
		t.Errorf("the container: %+v, %v", got, err)
	}
	if got, err := Read(pod, KindPod); got == nil || err != nil {
		t.Errorf("the pod: %+v, %v", got, err)
	}
	if err := os.Remove(filepath.Join(dir, "kubepods/podu1")); err != nil {
		t.Fatal(err)
	}
	for c, kind := range map[cgroupfs.Cgroup]string{pod: KindPod, container: KindContainer} {
		if got, err := Read(c, kind); got != nil || !errors.Is(err, blkio.ErrGone) {
			t.Errorf("%s: %+v, %v", kind, got, err)
		}
		if err := Write(c, exampleOf(kind)); !errors.Is(err, blkio.ErrGone) {
			t.Errorf("%s: a write gives %v", kind, err)
		}
	}
}

// TestForged verifies that a record counts only at the place of its kind, and only where no
// other user could have written it.
func TestForged(t *testing.T) {
	ofPod, ofContainer := marshaled(t)
	for _, tt := range []struct {
		name string
		a    cgroupfs.Attribute
		ok   bool
		err  bool
	}{
		{"a pod's", cgroupfs.Attribute{Value: ofPod, Owner: os.Geteuid()}, true, false},
		{"a pod's, of root", cgroupfs.Attribute{Value: ofPod}, true, false},
		{"a container's", cgroupfs.Attribute{Value: ofContainer, OnParent: true}, true, false},
		{"a pod's, of another user", cgroupfs.Attribute{Value: ofPod, Owner: otherUser}, false, false},
		{"a container's, of another user", cgroupfs.Attribute{Value: ofContainer, OnParent: true, Owner: otherUser}, false, false},
		{"a container's at a pod's place", cgroupfs.Attribute{Value: ofContainer}, false, false},
		{"a pod's at a container's place", cgroupfs.Attribute{Value: ofPod, OnParent: true}, false, false},
		{"no record", cgroupfs.Attribute{Value: []byte("{")}, false, true},
		{"no record, of another user", cgroupfs.Attribute{Value: []byte("{"), Owner: otherUser}, false, false},
		{"half of one", cgroupfs.Attribute{Value: ofPod[:len(ofPod)/2]}, false, true},
		{"empty", cgroupfs.Attribute{}, false, true},
	} {
		r, err := ParseAttribute(tt.a)
		if (r != nil) != tt.ok || (err != nil) != tt.err {
			t.Errorf("%s: %+v, %v", tt.name, r, err)
		}
	}
}

// otherUser owns a directory.
const otherUser = 1 << 20

// marshaled returns the record of a pod, and that of a container.
func marshaled(t *testing.T) (ofPod, ofContainer []byte) {
	t.Helper()
	ofPod, err := exampleOf(KindPod).Marshal(MaxSize)
	if err != nil {
		t.Fatal(err)
	}
	ofContainer, err = exampleOf(KindContainer).Marshal(MaxSize)
	if err != nil {
		t.Fatal(err)
	}
	return ofPod, ofContainer
}

// TestForgedInPlace covers the same as TestForged, at the places themselves.
func TestForgedInPlace(t *testing.T) {
	_, pod, container, dir := newTree(t)
	ofPod, ofContainer := marshaled(t)
	for c, data := range map[cgroupfs.Cgroup][]byte{pod: ofContainer, container: ofPod} {
		kind := KindPod
		if c == container {
			kind = KindContainer
		}
		if err := WriteRaw(c, kind, data); err != nil {
			t.Fatal(err)
		}
		if r, err := Read(c, kind); r != nil || err != nil {
			t.Errorf("%s has a record of the other kind: %+v, %v", kind, r, err)
		}
		if raw, err := ReadRaw(c, kind); string(raw) != string(data) || err != nil {
			t.Errorf("%s: %d bytes, %v", kind, len(raw), err)
		}
	}
	if os.Geteuid() == 0 { // only root can give a directory to another user
		if err := Write(pod, exampleOf(KindPod)); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(filepath.Join(dir, "kubepods/podu1"), otherUser, otherUser); err != nil {
			t.Fatal(err)
		}
		if r, err := Read(pod, KindPod); r != nil || err != nil || !Foreign(pod) {
			t.Errorf("of another user: %+v, %v", r, err)
		}
	}
}

// TestWriteTooLarge verifies that a record is not written in part.
func TestWriteTooLarge(t *testing.T) {
	_, pod, _, _ := newTree(t)
	if err := Write(pod, exampleOf(KindPod)); err != nil {
		t.Fatal(err)
	}
	large := exampleOf(KindPod)
	for i := range uint32(3000) {
		large.Settings = append(large.Settings, set(blkio.Wbps, blkio.Dev{Major: 8, Minor: i}, blkio.Amount(1e15)+blkio.Amount(i), path))
	}
	if err := Write(pod, large); err == nil {
		t.Error("a record of 3,000 disks is written")
	}
	if r, err := Read(pod, KindPod); err != nil || !r.HasSettings(exampleOf(KindPod)) {
		t.Errorf("the record before: %+v, %v", r, err)
	}
}
