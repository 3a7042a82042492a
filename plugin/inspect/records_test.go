package inspect

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/internal/fakenode"
	"github.com/nri-blkio/nri-blkio/plugin/record"
)

func TestRecords(t *testing.T) {
	dir := t.TempDir()
	fakenode.WriteFiles(t, dir, map[string]string{
		"cgroup.controllers": "io\n", "kubepods/pod1/db/cgroup.events": "", "kubepods/pod1/log/cgroup.events": "", "kubepods/pod2/web/cgroup.events": "",
	})
	tree := fakenode.OpenCgroups(t, dir)
	container := func(pod, name string) record.Record {
		return record.Record{Kind: record.KindContainer, Namespace: "prod", Pod: pod, UID: "of-" + pod, Container: name}
	}
	for cg, r := range map[string]record.Record{
		"kubepods/pod1/log": container("db-0", "log"), "kubepods/pod1/db": container("db-0", "db"), "kubepods/pod2/web": container("web-0", "web"),
		"kubepods/pod2": {Kind: record.KindPod, Namespace: "prod", Pod: "web-0", UID: "of-web-0"},
	} {
		if err := record.Write(tree.Cgroup(cg), &r); err != nil {
			t.Fatal(err)
		}
	}
	const db, log, webPod, web = "kubepods/pod1/db db-0 db", "kubepods/pod1/log db-0 log", "kubepods/pod2 web-0 ", "kubepods/pod2/web web-0 web"
	for _, tt := range []struct {
		filter Filter
		want   []string
	}{
		{want: []string{db, log, webPod, web}},
		{filter: Filter{Namespace: "prod", Name: "db-0"}, want: []string{db, log}},
		{filter: Filter{Namespace: "test", Name: "db-0"}},
	} {
		got, err := Records(tree, tt.filter)
		if d := cmp.Diff(tt.want, recordNames(got)); d != "" || err != nil {
			t.Errorf("%v: %v; -want +got:\n%s", tt.filter, err, d)
		}
	}
	all, err := Records(tree, Filter{})
	if err != nil {
		t.Fatal(err)
	}
	pods := PodsWithoutRecord(tree, all)
	if d := cmp.Diff([]string{"kubepods/pod1 db-0 "}, recordNames(pods)); d != "" {
		t.Errorf("pods without a record, -want +got:\n%s", d)
	}
	if r := pods[0].Record; r.Kind != record.KindPod || r.UID != "of-db-0" {
		t.Errorf("%+v", r)
	}
}

func recordNames(records []Recorded) (out []string) {
	for _, r := range records {
		out = append(out, strings.Join([]string{r.Cgroup.Path(), r.Record.Pod, r.Record.Container}, " "))
	}
	return out
}

// TestRecordsOrder verifies the order by namespace, pod, UID and container, the pod's own record first, in any
// places of their cgroups.
func TestRecordsOrder(t *testing.T) {
	dir := t.TempDir()
	want := []struct{ namespace, pod, uid, container string }{
		{"a", "z", "1", ""}, {"a", "z", "1", "c"}, {"a", "z", "1", "d"}, {"a", "z", "2", "b"}, {"b", "p", "4", "c"}, {"b", "q", "3", "c"},
	}
	files := map[string]string{"cgroup.controllers": "io\n"}
	paths := make([]string, len(want))
	for i, w := range want {
		paths[i] = strings.TrimSuffix("kubepods/pod"+string(rune('9'-w.uid[0]+'0'))+"/"+w.container, "/")
		files[paths[i]+"/cgroup.events"] = ""
	}
	fakenode.WriteFiles(t, dir, files)
	tree := fakenode.OpenCgroups(t, dir)
	for i, w := range want {
		kind := record.KindContainer
		if w.container == "" {
			kind = record.KindPod
		}
		if err := record.Write(tree.Cgroup(paths[i]), &record.Record{Kind: kind, Namespace: w.namespace, Pod: w.pod, UID: w.uid, Container: w.container}); err != nil {
			t.Fatal(err)
		}
	}
	got, err := Records(tree, Filter{})
	if err != nil || len(got) != len(want) {
		t.Fatal(len(got), err)
	}
	for i, r := range got {
		if r.Cgroup.Path() != paths[i] {
			t.Errorf("%d is %s, want %s", i, r.Cgroup.Path(), paths[i])
		}
	}
}

// TestRecordsFail verifies that a record that cannot be parsed is in the error with its cgroup, and hides no
// other. Attributes that are no record of the pod itself are left out.
func TestRecordsFail(t *testing.T) {
	dir := t.TempDir()
	fakenode.WriteFiles(t, dir, map[string]string{
		"cgroup.controllers": "io\n", "kubepods/pod1/c/cgroup.events": "", "kubepods/pod2/cgroup.events": "", "kubepods/pod3/cgroup.events": "", "kubepods/pod4/cgroup.events": "",
	})
	tree := fakenode.OpenCgroups(t, dir)
	container := record.Record{Kind: record.KindContainer, Namespace: "prod", Pod: "db-0", UID: "4", Container: "db"}
	data, err := container.Marshal(record.MaxSize)
	if err != nil {
		t.Fatal(err)
	}
	for cg, raw := range map[string][]byte{"kubepods/pod1": []byte("{"), "kubepods/pod3": []byte("evil\x1b[2J"), "kubepods/pod4": data} {
		if err := record.WriteRaw(tree.Cgroup(cg), record.KindPod, raw); err != nil {
			t.Fatal(err)
		}
	}
	for cg, r := range map[string]*record.Record{
		"kubepods/pod1/c": {Kind: record.KindContainer, Namespace: "prod", Pod: "log-0", UID: "1", Container: "c"},
		"kubepods/pod2":   {Kind: record.KindPod, Namespace: "prod", Pod: "web-0", UID: "2"},
	} {
		if err := record.Write(tree.Cgroup(cg), r); err != nil {
			t.Fatal(err)
		}
	}
	got, err := Records(tree, Filter{})
	if without := PodsWithoutRecord(tree, got); len(without) > 0 {
		t.Errorf("taken for pods without a record: %q", recordNames(without))
	}
	if d := cmp.Diff([]string{"kubepods/pod1/c log-0 c", "kubepods/pod2 web-0 "}, recordNames(got)); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	if !errors.Is(err, record.ErrParse) || !strings.Contains(err.Error(), "cgroup kubepods/pod1: ") || !strings.Contains(err.Error(), "cgroup kubepods/pod3: ") || strings.Contains(err.Error(), "pod4") {
		t.Errorf("error %v", err)
	}
}

// TestFilter verifies that a pod has a namespace and a name, and no other part.
func TestFilter(t *testing.T) {
	for _, text := range []string{"", "db-0", "/db-0", "prod/", "prod/db-0/db", "/"} {
		if f, err := ParseFilter(text); err == nil || f != (Filter{}) {
			t.Errorf("%q: %+v, %v", text, f, err)
		}
	}
	f, err := ParseFilter("prod/db-0")
	if want := (Filter{Namespace: "prod", Name: "db-0"}); f != want || err != nil {
		t.Errorf("%+v, %v", f, err)
	}
	among := Filter{Namespace: "prod"}.Among(map[string]bool{"prod/db-0": true, "test/db-0": true})
	if !among.Matches("prod", "db-0") || among.Matches("prod", "web") || among.Matches("test", "db-0") {
		t.Error("a filter among pods does not select what both do")
	}
	for f, want := range map[Filter]string{f: "prod/db-0", {}: ""} {
		if got := f.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
