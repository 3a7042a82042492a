package podevent

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/plugin/mailbox"
)

const testUID, other = "0f9bd3ce-7a4e-4b0c-9f52-8d1d5f1c2b3a", "d41d8cd98f00b204e9800998ecf8427e"

// sample returns a document with two events.
func sample() *Document {
	at := func(seconds int64) time.Time { return Time(time.Unix(1e9+seconds, 5000)) }
	return &Document{Version: Version, Pod: Pod{testUID, "prod", "db-0"}, Events: []Event{
		{Refused, "0123456789abcdef", `container db: nri-blkio: limits.blkio.noderesource.dev/containers: entry 1 "/data wpbs=1": unknown key "wpbs"`, 12, at(0), at(130)},
		{Changed, KeyOf("a"), "a", 1, at(60), at(60)},
	}}
}

func encoded(t testing.TB, d *Document) []byte {
	t.Helper()
	data, err := Format().Encode(d)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestFormat verifies the bytes of a document: another version of the program may have written what this one reads.
func TestFormat(t *testing.T) {
	const want = `{"version":1,"uid":"0f9bd3ce-7a4e-4b0c-9f52-8d1d5f1c2b3a","namespace":"prod","name":"db-0","events":[` +
		`{"reason":"BlkioRefused","key":"0123456789abcdef","note":"container db: nri-blkio: limits.blkio.noderesource.dev/containers: entry 1 \"/data wpbs=1\": unknown key \"wpbs\"",` +
		`"count":12,"first":"2001-09-09T01:46:40.000005Z","last":"2001-09-09T01:48:50.000005Z"},` +
		`{"reason":"BlkioChanged","key":"0eb5b8d6f81bc677","note":"a","count":1,"first":"2001-09-09T01:47:40.000005Z","last":"2001-09-09T01:47:40.000005Z"}]}` + "\n"
	data := encoded(t, sample())
	if d := cmp.Diff(want, string(data)); d != "" {
		t.Error(d)
	}
	got, err := Format().Decode(data)
	if d := cmp.Diff(sample(), got); err != nil || d != "" {
		t.Errorf("%v, %s", err, d)
	}
}

// TestLargest verifies that the largest document fits into a file.
func TestLargest(t *testing.T) {
	d := sample()
	d.Namespace, d.Name = strings.Repeat("a", 63), strings.Repeat("a", 253)
	d.Events = nil
	for i := range MaxEvents {
		d.Events = append(d.Events, Event{ChangeRejected, KeyOf(string(rune('a' + i))), string(rune('a'+i)) + strings.Repeat(`"`, MaxNote-1), 1 << 62, Time(time.Unix(1e9, 123456789)), Time(time.Unix(1e9, 123456789))})
	}
	if n := len(encoded(t, d)); n > MaxSize-MaxSize/20 {
		t.Errorf("%d bytes of %d", n, MaxSize)
	}
}

// TestInvalid verifies that what is not a document is neither written nor read.
func TestInvalid(t *testing.T) {
	valid := string(encoded(t, sample()))
	for name, tt := range map[string]struct {
		change func(*Document)
		want   string
	}{
		"version":   {func(d *Document) { d.Version = 2 }, "unknown version 2"},
		"uid":       {func(d *Document) { d.UID = "../x" }, "pod: invalid value"},
		"namespace": {func(d *Document) { d.Namespace = "a/b" }, "pod: invalid value"},
		"name":      {func(d *Document) { d.Name = "" }, "pod: invalid value"},
		"none":      {func(d *Document) { d.Events = nil }, "0 of them"},
		"many":      {func(d *Document) { d.Events = make([]Event, MaxEvents+1) }, "17 of them"},
		"reason":    {func(d *Document) { d.Events[1].Reason = "Killed" }, `events: 1: reason: invalid value "Killed"`},
		"no key":    {func(d *Document) { d.Events[1].Key = "" }, `events: 1: key: invalid value ""`},
		"key":       {func(d *Document) { d.Events[1].Key = "0123456789ABCDEF" }, "key: invalid value"},
		"short key": {func(d *Document) { d.Events[1].Key = "0123" }, "key: invalid value"},
		"line":      {func(d *Document) { d.Events[0].Note = "a\nb" }, `note: invalid value "a\nb"`},
		"terminal":  {func(d *Document) { d.Events[0].Note = "\x1b[2J" }, "note: invalid value"},
		"unicode":   {func(d *Document) { d.Events[0].Note = "\u202e" }, "note: invalid value"},
		"long":      {func(d *Document) { d.Events[0].Note = strings.Repeat("x", MaxNote+1) }, "note: invalid value"},
		"empty":     {func(d *Document) { d.Events[0].Note = "" }, "note: invalid value"},
		"count":     {func(d *Document) { d.Events[0].Count = 0 }, "count: invalid value 0"},
		"no time":   {func(d *Document) { d.Events[0].Last = time.Time{} }, "first or last"},
		"precise":   {func(d *Document) { d.Events[0].First = d.Events[0].First.Add(1) }, "first or last"},
		"twice":     {func(d *Document) { d.Events[1].Reason, d.Events[1].Key = d.Events[0].Reason, d.Events[0].Key }, "events: 1: the same as 0"},
	} {
		d := sample()
		tt.change(d)
		_, err := Format().Encode(d)
		data, _ := mailbox.JSON(d)
		_, readErr := Format().Decode(data)
		for _, err := range []error{err, readErr} {
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%s: %v, want %q", name, err, tt.want)
			}
		}
	}
	for data, want := range map[string]string{
		strings.Replace(valid, `"count"`, `"node":"a","count"`, 1): "unknown field", strings.Repeat(" ", MaxSize+1): "maximum 40960",
		strings.Replace(valid, "40.000005Z", "40.000005+00:00", 1): "not in the form", "": "unexpected end",
	} {
		if d, err := Format().Decode([]byte(data)); d != nil || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: %v, want %q", data, err, want)
		}
	}
}

// TestRead verifies that a document is that of the pod in the name of its file.
func TestRead(t *testing.T) {
	dir := t.TempDir()
	if _, err := Format().Read(dir, testUID); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without a file: %v", err)
	}
	for _, uid := range []string{testUID, other} {
		if err := os.WriteFile(filepath.Join(dir, mailbox.FileName(uid)), encoded(t, sample()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if d, err := Format().Read(dir, testUID); err != nil || d.Name != "db-0" {
		t.Errorf("%v, %v", d, err)
	}
	if _, err := Format().Read(dir, other); err == nil || !strings.Contains(err.Error(), "uid: invalid value") {
		t.Errorf("another pod's: %v", err)
	}
}

// FuzzDecode verifies that what is accepted is within the bounds, and is written as it was read.
func FuzzDecode(f *testing.F) {
	f.Add(encoded(f, sample()))
	f.Add([]byte(`{"version":1,"uid":"` + testUID + `","namespace":"a","name":"b","events":[{}]}` + "\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		d, err := Format().Decode(data)
		if err != nil {
			return
		}
		if again, err := Format().Encode(d); err != nil || string(again) != string(data) {
			t.Errorf("%v: read %q, wrote %q", err, data, again)
		}
	})
}
