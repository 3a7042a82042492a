package plugin

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	logtest "github.com/sirupsen/logrus/hooks/test"

	"github.com/nri-blkio/nri-blkio/blkio/hostfs"
	"github.com/nri-blkio/nri-blkio/plugin/mailbox"
	"github.com/nri-blkio/nri-blkio/plugin/poddoc"
	"github.com/nri-blkio/nri-blkio/plugin/podfacts"
	"github.com/nri-blkio/nri-blkio/plugin/recovery"
)

// TestDocuments verifies that Run follows the directory by itself until its context ends, that it makes the directory, and
// that what cannot be read is logged and counted.
func TestDocuments(t *testing.T) {
	log, hook := logtest.NewNullLogger()
	p := newPlugin(t, func(c *Config) { c.Log = log })
	dir := filepath.Join(t.TempDir(), "exchange")
	d := p.NewDocuments(dir, func() {
		if err := os.MkdirAll(dir, 0o770); err != nil {
			t.Error(err)
		}
	})
	wantCounts := func(when, usable, unreadable string) {
		t.Helper()
		want := `
# HELP nri_blkio_pod_documents Documents of the cluster part, by whether the limits part can use them. For one that it cannot use, an earlier version counts.
# TYPE nri_blkio_pod_documents gauge
nri_blkio_pod_documents{state="read"} ` + usable + `
nri_blkio_pod_documents{state="unreadable"} ` + unreadable + "\n"
		if err := testutil.CollectAndCompare(d, strings.NewReader(want)); err != nil {
			t.Errorf("%s: %v", when, err)
		}
	}
	wantCounts("before", "0", "0")
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			d.Run(ctx)
		}()
		time.Sleep(2 * documentsInterval)
		doc := poddoc.Document{UID: "0f9bd3ce-7a4e-4b0c-9f52-8d1d5f1c2b3a", Facts: podfacts.Facts{Namespace: "prod", Name: "db-0"}}
		doc.Bound()
		data, err := poddoc.Format().Encode(&doc)
		if err != nil {
			t.Fatal(err)
		}
		for name, data := range map[string][]byte{mailbox.FileName(doc.UID): data, mailbox.FileName(strings.Repeat("0", 32)): []byte(`{"version":2}`)} {
			if err := hostfs.ReplaceFile(filepath.Join(dir, name), data); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(2 * documentsInterval)
		synctest.Wait()
		wantCounts("after", "1", "1")
		cancel()
		<-done
	})
	if e := hook.LastEntry(); e == nil || e.Message != "Some documents of pods cannot be read: what is in force for these pods stays" || e.Data["dir"] != dir {
		t.Errorf("logged %v", e)
	}
}

// TestDocumentsPanic verifies that a panic about one document does not end the loop.
func TestDocumentsPanic(t *testing.T) {
	log, hook := logtest.NewNullLogger()
	p := newPlugin(t, func(c *Config) { c.Log, c.Recovery = log, recovery.New(log) })
	d := p.NewDocuments(t.TempDir(), func() { panic("a bug") })
	d.Read()
	if e := hook.LastEntry(); e == nil || e.Message != "Recovered from a panic" || e.Data["step"] != "read documents" {
		t.Errorf("logged %v", e)
	}
}
