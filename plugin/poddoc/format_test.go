package poddoc

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio/hostfs"
	"github.com/nri-blkio/nri-blkio/plugin/mailbox"
	"github.com/nri-blkio/nri-blkio/plugin/podfacts"
	"github.com/nri-blkio/nri-blkio/policy"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

func TestRoundTrip(t *testing.T) {
	for name, d := range map[string]*Document{
		"all fields": sample(),
		"least":      {Version: Version, UID: strings.Repeat("0", 32), Facts: podfacts.Facts{Namespace: "a", Name: "b.c"}},
	} {
		t.Run(name, func(t *testing.T) {
			data := encoded(t, d)
			got, err := Format().Decode(data)
			if err != nil {
				t.Fatalf("%v: %s", err, data)
			}
			equal(t, d, got)
			for range 10 { // maps have no order
				if !bytes.Equal(data, encoded(t, d)) {
					t.Fatal("other bytes for the same document")
				}
			}
		})
	}
}

// TestFormat verifies that another version of the program may have written what this one reads.
func TestFormat(t *testing.T) {
	const want = `{"version":1,"uid":"0f9bd3ce-7a4e-4b0c-9f52-8d1d5f1c2b3a","namespace":"prod","name":"db-0",` +
		`"annotations":{"limits.blkio.noderesource.dev/containers":"* wbps=20Mi; \"/a <b>\" riops=1k","weight.blkio.noderesource.dev/containers":"50"},` +
		`"labels":{"app":"db"},"namespaceLabels":{"kubernetes.io/metadata.name":"prod","tier":""},"volumes":[` +
		`{"name":"data","claim":"data-db-0","places":[{"container":"db","path":"/var/lib/postgresql"},` +
		`{"container":"db","path":"/wal"},{"container":"init","path":"/data"}],"limits":"wbps=50Mi",` +
		`"class":{"name":"gold","rates":{"blkio.noderesource.dev/riops":"1k","wbps":"50Mi"}},` +
		`"size":10737418240,"attachment":{"driver":"CSI.example.com","rates":{"qos.linbit.com/rbps":"7"}}},` +
		`{"name":"gone","claim":"gone"},` +
		`{"name":"host","places":[{"container":"db","path":"/host"}]},` +
		`{"name":"raw","claim":"raw","class":{"name":"absent"},"omitted":{"limits":"more than 4096 bytes"}}],"owner":{"name":"virt-launcher-db","uid":"4c0fcb36-99a7-4ecd-9f6d-0d2a1d0d2f6e"}}` + "\n"
	equal(t, want, string(encoded(t, sample())))
}

// TestDecodeStrictly verifies that each change to the bytes of a document is an error.
func TestDecodeStrictly(t *testing.T) {
	valid := string(encoded(t, sample()))
	replace := func(old, new string) string {
		if !strings.Contains(valid, old) {
			t.Fatalf("%s is not in the document", old)
		}
		return strings.Replace(valid, old, new, 1)
	}
	for name, tt := range map[string]struct{ data, want string }{
		"empty":             {"", "unexpected end"},
		"no object":         {"[]", "cannot unmarshal"},
		"cut off":           {valid[:len(valid)/2], "unexpected end"},
		"two documents":     {valid + valid, "after top-level value"},
		"large":             {strings.Repeat(" ", MaxSize) + valid, "maximum 73728"},
		"unknown field":     {replace(`"name":"db-0"`, `"name":"db-0","node":"a"`), `unknown field "node"`},
		"unknown below":     {replace(`"claim":"gone"`, `"claim":"gone","x":1`), `unknown field "volumes[1].x"`},
		"another case":      {replace(`"namespace":`, `"Namespace":`), `unknown field "Namespace"`},
		"twice":             {replace(`"name":"db-0"`, `"name":"db-0","name":"db-0"`), "duplicate field"},
		"key twice":         {replace(`"tier":""`, `"tier":"","tier":""`), "duplicate field"},
		"blanks":            {replace(`"name":`, `"name": `), "not in the form"},
		"null":              {replace(`"tier":""`, `"tier":null`), "not in the form"},
		"without a newline": {strings.TrimSpace(valid), "not in the form"},
		"escaped":           {replace("db-0", `db\u002d0`), "not in the form"},
		"wrong type":        {replace(`"db-0"`, "5"), "cannot unmarshal"},
		"no UTF-8":          {replace("20Mi", "\xff"), "not in the form"},
		"uid":               {replace(testUID, "../../../etc/passwd"), `uid: invalid value "../../../etc/passwd"`},
		"namespace":         {replace(`"prod"`, `"a/b"`), "namespace: invalid value"},
		"name":              {replace(`"db-0"`, `""`), "name: invalid value"},
		"annotation":        {replace("weight.blkio.noderesource.dev", "weight.example.com"), "annotations: invalid value"},
		"volume":            {replace(`"name":"data"`, `"name":"../x"`), "volumes: 0: name: invalid value"},
		"order":             {replace(`"name":"data"`, `"name":"zzz"`), "is not in order"},
		"claim":             {replace(`"claim":"gone"`, `"claim":"a b"`), "claim: invalid value"},
		"no claim":          {replace(`"claim":"raw",`, ""), "claim: invalid value"},
		"mount":             {replace(`"/wal"`, `"/wal/../x"`), "places: invalid value"},
		"relative":          {replace(`"/wal"`, `"wal"`), "places: invalid value"},
		"parameter":         {replace(annotation.OwnPrefix+"riops", "iops"), `class.rates: invalid value "iops"`},
		"long rate":         {replace(`"1k"`, `"`+strings.Repeat("1", 65)+`"`), "class.rates: invalid value"},
		"negative size":     {replace(`"size":1`, `"size":-1`), "size: invalid value"},
		"huge size":         {replace(`"size":10737418240`, `"size":9223372036854775808`), "cannot unmarshal"},
		"driver":            {replace("CSI.example.com", "a/b"), `attachment.driver: invalid value "a/b"`},
		"metadata":          {replace("qos.linbit.com/rbps", "qos.linbit.com/device"), `attachment.rates: invalid value "qos.linbit.com/device"`},
		"omitted part":      {replace(`"limits":"more`, `"places":"more`), `omitted: invalid value "places"`},
	} {
		t.Run(name, func(t *testing.T) {
			d, err := Format().Decode([]byte(tt.data))
			contains(t, err, tt.want)
			if d != nil {
				t.Errorf("with a document: %v", d)
			}
		})
	}
}

// TestDecodeVersion verifies that the error of another version is known before its fields are.
func TestDecodeVersion(t *testing.T) {
	for data, want := range map[string]string{
		`{"version":2,"new":1}`: "unknown version 2 (this program knows 1)",
		`{}`:                    "unknown version 0",
	} {
		if _, err := Format().Decode([]byte(data)); !errors.Is(err, mailbox.ErrVersion) || !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("%s: %v", data, err)
		}
	}
}

// TestEncodeValidates verifies that what Decode would reject is not written.
func TestEncodeValidates(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*Document)
		want   string
	}{
		"version":     {func(d *Document) { d.Version = 2 }, "unknown version 2"},
		"uid":         {func(d *Document) { d.UID = ".." }, "uid"},
		"annotations": {func(d *Document) { d.Annotations = many(podfacts.MaxAnnotations + 1) }, "65 of them (maximum 64)"},
		"volumes":     {func(d *Document) { d.Volumes = make([]policy.Volume, MaxVolumes+1) }, "129 of them"},
		"twice":       {func(d *Document) { d.Volumes[1].Name = d.Volumes[0].Name }, "not in order"},
		"label":       {func(d *Document) { d.NamespaceLabels["a"] = strings.Repeat("b", 64) }, "namespaceLabels"},
		"pod label":   {func(d *Document) { d.Labels["a"] = strings.Repeat("b", 64) }, "labels"},
		"text":        {func(d *Document) { s := strings.Repeat("x", MaxText+1); d.Volumes[0].Limits = &s }, "limits"},
		"size":        {func(d *Document) { d.Annotations["a.blkio.noderesource.dev/b"] = strings.Repeat("x", 28<<10) }, "annotations: 28832 bytes (maximum 28672)"},
		"labels":      {func(d *Document) { d.Labels = labels() }, "labels: 14602 bytes (maximum 8192)"},
		"namespace":   {func(d *Document) { d.NamespaceLabels = labels() }, "namespaceLabels: 14602 bytes (maximum 8192)"},
		"all volumes": {func(d *Document) { d.Volumes = claims(100) }, "volumes: 36102 bytes (maximum 27648)"},
		"both":        {func(d *Document) { d.Omitted = map[string]string{podfacts.PartAnnotations: "x"} }, "a part that is there"},
		"owner":       {func(d *Document) { d.Owner.Name = "../x" }, "owner"},
		"owner's uid": {func(d *Document) { d.Owner.UID = "" }, "owner"},
		"no cause":    {func(d *Document) { d.Volumes[3].Omitted[PartParameters] = "" }, "omitted"},
	} {
		t.Run(name, func(t *testing.T) {
			d := sample()
			tt.change(d)
			_, err := Format().Encode(d)
			contains(t, err, tt.want)
		})
	}
}

// many returns annotations of the plugin.
func many(n int) map[string]string {
	out := map[string]string{}
	for i := range n {
		out[fmt.Sprintf("limits.blkio.noderesource.dev/container.c%d", i)] = "* wbps=1Mi"
	}
	return out
}

// FuzzDecode verifies that a document that is accepted is within the bounds, and is written again as it was read.
func FuzzDecode(f *testing.F) {
	data, err := Format().Encode(sample())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add([]byte(`{"version":1,"uid":"` + testUID + `","namespace":"a","name":"b"}` + "\n"))
	f.Add([]byte(`{"version":1,"volumes":[{}]}`))
	f.Add([]byte(`{"version":2}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		d, err := Format().Decode(data)
		if err != nil {
			if d != nil {
				t.Errorf("with a document: %v", d)
			}
			return
		}
		again, err := Format().Encode(d)
		if err != nil || !bytes.Equal(again, data) {
			t.Errorf("%v\nread  %q\nwrote %q", err, data, again)
		}
		if !mailbox.IsUID(d.UID) || len(data) > MaxSize {
			t.Errorf("accepted %q", data)
		}
	})
}

// TestDecodeBounds verifies that the decoder takes no document with more annotations or labels than Bound passes on.
func TestDecodeBounds(t *testing.T) {
	for name, fill := range map[string]func(*Document){
		"annotations": func(d *Document) {
			d.Annotations = map[string]string{"limits.blkio.noderesource.dev/containers": strings.Repeat("x", 40<<10)}
		},
		"labels": func(d *Document) {
			d.Labels = map[string]string{}
			for i := range 6000 {
				d.Labels[fmt.Sprint(i)] = ""
			}
		},
	} {
		d := Document{Version: Version, UID: strings.Repeat("a", 32), Facts: podfacts.Facts{Namespace: "prod", Name: "db-0"}}
		fill(&d)
		data, err := mailbox.JSON(d)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Format().Decode(data); err == nil {
			t.Errorf("%s: a document of %d bytes is accepted", name, len(data))
		}
	}
}

// TestSize verifies that each text of a document counts, because a receiver keeps it.
func TestSize(t *testing.T) {
	class := func(name string) *policy.ClaimClass {
		return &policy.ClaimClass{Name: name, Rates: map[string]string{"wbps": "1Mi"}}
	}
	d := &Document{
		Facts: podfacts.Facts{
			Annotations:     map[string]string{"a": "bc"},
			Labels:          map[string]string{"d": ""},
			NamespaceLabels: map[string]string{"e": "f"},
			Owner:           podfacts.Owner{Name: "vm", UID: "u"},
			Volumes: []policy.Volume{
				{Name: "v", Claim: "data", Limits: new("wbps=1Mi"), Places: []policy.Place{{Container: "db", Path: "/data"}}, Class: class("fast"), Attachment: &policy.ClaimAttachment{Driver: "csi", Rates: map[string]string{"k": "5"}}},
				{Name: "w", Claim: "x"},
			},
		},
	}
	if got, want := d.size(), 10*entrySize+3+1+2+(2+1)+(1+4+8+7+4+7)+2+(3+2); got != want {
		t.Errorf("%d bytes, want %d", got, want)
	}
}

// TestSizeOfManyLabels verifies that labels that a receiver does not keep do not count: so many labels take no more room
// than those that are kept.
func TestSizeOfManyLabels(t *testing.T) {
	d := &Document{Facts: podfacts.Facts{Labels: map[string]string{}}}
	for i := range 1028 {
		d.Labels[fmt.Sprintf("%04d", i)] = ""
		if _, isCut := d.WithinRoom(policy.Default()); !isCut && d.size() != (i+1)*(entrySize+4) {
			t.Fatalf("%d labels that are kept: %d bytes, want %d", i+1, d.size(), (i+1)*(entrySize+4))
		}
	}
	if d.size() != maxLabels || maxLabels > 48<<10 {
		t.Errorf("%d bytes, want %d", d.size(), maxLabels)
	}
}

// TestLabelMemory verifies that what a receiver keeps of all documents takes about the memory that the format counts.
func TestLabelMemory(t *testing.T) {
	kept := map[string]map[string]string{}
	dir := t.TempDir()
	r := mailbox.NewReader(mailbox.Config[Document]{Dir: dir, Format: Format(), Warn: func(error) {}, Changed: func(uid string, d *Document) {
		if d != nil {
			kept[uid] = maps.Clone(d.Labels)
		}
	}})
	d := &Document{Version: Version, Facts: podfacts.Facts{Namespace: "prod", Name: "db-0", Labels: map[string]string{}}}
	for i := range 480 { // as many as the node keeps
		d.Labels[fmt.Sprintf("%03d", i)] = ""
	}
	for i := range 1000 {
		d.UID = fmt.Sprintf("%032d", i)
		if err := hostfs.ReplaceFile(filepath.Join(dir, mailbox.FileName(d.UID)), encoded(t, d)); err != nil {
			t.Fatal(err)
		}
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for range 3 {
		r.Read(time.Now())
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	usable, _ := r.Counts()
	grown := int(after.HeapAlloc - before.HeapAlloc)
	t.Logf("%d documents of %d labels take %d KiB", len(kept), len(d.Labels), grown>>10)
	if grown > maxKept+2<<20 { // the files and their errors beside it
		t.Errorf("%d KiB are kept, and the bound is %d KiB", grown>>10, maxKept>>10)
	}
	if len(kept) != int(usable) || len(kept) < maxKept/(480*(entrySize+3))-1 {
		t.Errorf("%d documents are kept, %d are in use", len(kept), usable)
	}
	runtime.KeepAlive(kept)
}
