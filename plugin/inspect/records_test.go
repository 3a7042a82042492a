package inspect

import (
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
		{filter: Filter{"prod", "db-0"}, want: []string{db, log}},
		{filter: Filter{"test", "db-0"}},
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
