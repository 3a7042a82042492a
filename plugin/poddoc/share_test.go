package poddoc

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio/hostfs"
	"github.com/nri-blkio/nri-blkio/plugin/mailbox"
	"github.com/nri-blkio/nri-blkio/plugin/podfacts"
	"github.com/nri-blkio/nri-blkio/policy"
)

// largest returns the document of a pod that the API server admits, which needs as much memory as one can: with many short
// labels, and many mounts of one claim.
func largest(n int, namespace string) *Document {
	short := func(i int) string { return strings.ReplaceAll(fmt.Sprintf("%02x", i), "0", "g") }
	fill := func(of map[string]string, value string, size int) map[string]string {
		for i := 0; size > 0; i++ {
			of[short(i)] = value
			size -= len(short(i)) + len(value) + len(`"":"",`)
		}
		delete(of, short(len(of)-1))
		return of
	}
	d := &Document{
		UID: fmt.Sprintf("%032x", n),
		Facts: podfacts.Facts{
			Namespace:   namespace,
			Name:        fmt.Sprintf("p-%d", n),
			Annotations: map[string]string{"limits.blkio.noderesource.dev/containers": strings.Repeat("x", 27<<10)},
			Labels:      fill(map[string]string{}, "", MaxLabelBytes-2),
		},
	}
	mounts := fill(map[string]string{}, strings.Repeat("m", 24), maxVolumeBytes-200)
	v := policy.Volume{Name: "v", Claim: "c"}
	for at := range mounts {
		v.Places = append(v.Places, policy.Place{Container: "a", Path: "/" + at})
	}
	d.Volumes = []policy.Volume{v}
	d.Bound()
	return d
}

// TestNamespacesShare verifies that however many documents a tenant fills the memory with, those of other tenants are in use,
// also after a restart, and that they can grow.
func TestNamespacesShare(t *testing.T) {
	dir := t.TempDir()
	write := func(d *Document) {
		t.Helper()
		if len(d.Omitted) > 0 {
			t.Fatalf("omitted %v", d.Omitted)
		}
		if err := hostfs.ReplaceFile(filepath.Join(dir, mailbox.FileName(d.UID)), encoded(t, d)); err != nil {
			t.Fatal(err)
		}
	}
	used := map[string]*Document{}
	reader := func() *mailbox.Reader[Document] {
		clear(used)
		return mailbox.NewReader(mailbox.Config[Document]{Dir: dir, Format: Format(), Warn: func(error) {}, Changed: func(uid string, d *Document) {
			if used[uid] = d; d == nil {
				delete(used, uid)
			}
		}})
	}
	size := largest(0, "tenant").size()
	pods := maxKept/size + 10
	for n := range pods {
		write(largest(n, "tenant"))
	}
	now := time.Now()
	r := reader()
	look := func() {
		for range 2 {
			now = now.Add(time.Hour)
			r.Read(now)
		}
	}
	look()
	if t.Logf("%d documents of %d bytes", pods, size); size < 150_000 || len(used) >= pods || len(used) < pods-12 {
		t.Fatalf("%d documents are in use", len(used))
	}
	victim := &Document{UID: strings.Repeat("f", 32), Facts: podfacts.Facts{Namespace: "victim", Name: "db-0", Labels: map[string]string{"app": "db"}}}
	victim.Bound()
	write(victim)
	grown := largest(1<<20, "victim")
	for what, change := range map[string]func(){"small": func() {}, "grown": func() { write(grown) }, "restart": func() { r = reader() }} {
		change()
		look()
		if used[victim.UID] == nil {
			t.Errorf("%s: the document of another namespace is not in use", what)
		}
	}
	if look(); used[grown.UID] == nil || len(used) < pods-14 {
		t.Errorf("a large document of another namespace is not in use, of %d", len(used))
	}
}
