package contested

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/plugin/podevent"
	"github.com/nri-blkio/nri-blkio/plugin/reminder"
	"github.com/nri-blkio/nri-blkio/plugin/repair"
)

// world has pods of two tenants, of which one has a secret in each name.
func world() map[string]podevent.Pod {
	out := map[string]podevent.Pod{}
	for _, pod := range []string{"a/db-0", "a/web-0", "secret/secret-0"} {
		namespace, name, _ := strings.Cut(pod, "/")
		out["kubepods/"+name] = podevent.Pod{UID: "uid-" + name, Namespace: namespace, Name: name}
	}
	return out
}

// cgroup returns a container of a pod of the world, in a cgroup of its own, or what has this name.
func cgroup(name string) repair.NamedCgroup {
	switch name {
	case "removed":
		return repair.NamedCgroup{CgroupID: 3, Removed: true, ContainerName: repair.ContainerName{Namespace: "secret", Pod: "secret-1", Container: "secret"}}
	case "host":
		return repair.NamedCgroup{CgroupID: 4, Cgroup: "system.slice/secret.service"}
	}
	return repair.NamedCgroup{CgroupID: 5, Cgroup: "kubepods/" + name + "/ctr/below", ContainerName: repair.ContainerName{Namespace: "x", Pod: name, Container: "c"}}
}

func file(path, owner string, writers ...string) repair.File {
	f := repair.File{Path: path, Mountpoint: "/var/lib/kubelet/pods/secret", Inode: 7, Owner: cgroup(owner), State: repair.StateContested}
	for _, w := range writers {
		f.Writers = append(f.Writers, repair.Writer{NamedCgroup: cgroup(w), Share: 0.5})
	}
	return f
}

// TestEvents verifies what the pods that take part in a file learn about it: nothing about another tenant.
func TestEvents(t *testing.T) {
	const path = "/var/lib/kubelet/pods/secret/volumes/a.log"
	for name, tt := range map[string]struct {
		file repair.File
		want []string
	}{
		"one pod": {file(path, "db-0", "db-0", "db-0"), []string{
			`db-0: file "a.log" (inode 7) is written by another container of the pod with other limits as well: all its buffered writes count for container c`,
		}},
		"one namespace": {file(path, "web-0", "web-0", "db-0"), []string{
			`web-0: file "a.log" (inode 7) is written by another pod with other limits as well: all its buffered writes count for container c`,
			`db-0: file "a.log" (inode 7) is written by another pod with other limits as well: all its buffered writes count for the other pod`,
		}},
		"two tenants": {file(path, "secret-0", "secret-0", "db-0"), []string{
			`secret-0: file with inode 7 is written by another pod with other limits as well: all its buffered writes count for container c`,
			`db-0: file with inode 7 is written by another pod with other limits as well: all its buffered writes count for the other pod`,
		}},
		"host": {file(path, "host", "host", "db-0"), []string{
			"db-0: file with inode 7 is written by a process outside of the pod with other limits as well: all its buffered writes count for that process",
		}},
		"removed": {file(path, "removed", "web-0", "db-0"), []string{
			"web-0: file with inode 7 is written by another pod with other limits as well: all its buffered writes count for a container that has ended",
			"db-0: file with inode 7 is written by another pod with other limits as well: all its buffered writes count for a container that has ended",
		}},
		"no path":    {file("", "db-0", "db-0", "web-0"), []string{"db-0: file with inode 7 is written by another pod with other limits as well: all its buffered writes count for container c", "web-0: file with inode 7 is written by another pod with other limits as well: all its buffered writes count for the other pod"}},
		"no pod":     {file(path, "host", "host"), nil},
		"a bad name": {file("/a/\n\x1b[2J", "db-0", "db-0"), []string{`db-0: file "\n\x1b[2J" (inode 7) is written by another container of the pod with other limits as well: all its buffered writes count for container c`}},
	} {
		var got []string
		for _, e := range events(&tt.file, world()) {
			got = append(got, e.of.Name+": "+e.note)
			if strings.Contains(e.note, "secret") {
				t.Errorf("%s: names another tenant: %s", name, e.note)
			}
		}
		if d := cmp.Diff(tt.want, got); d != "" {
			t.Errorf("%s: -want +got:\n%s", name, d)
		}
	}
}

// TestLook verifies that a file that stays contested is noted again every ten minutes only, that the events of a pod are
// bounded, and that a report that is missing or unreadable is none.
func TestLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		report, failed := &repair.Report{}, errors.New("parse")
		var got []string
		w := New(Config{
			Report: func() (*repair.Report, error) { return report, failed }, Pods: world,
			Note: func(of podevent.Pod, reason podevent.Reason, _ podevent.Key, _ string) {
				got = append(got, of.Name+" "+string(reason))
			},
		})
		noted := func(what string, d time.Duration, want ...string) {
			t.Helper()
			for end := time.Now().Add(d); time.Now().Before(end); {
				time.Sleep(interval)
				w.look(time.Now())
			}
			slices.Sort(got)
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("%s: -want +got:\n%s", what, d)
			}
			got = nil
		}
		report.Files = []repair.File{file("/a", "db-0", "db-0", "web-0"), {State: repair.StateWaiting, Owner: cgroup("db-0")}}
		noted("unreadable", 2*interval)
		failed = nil
		const db, web = "db-0 BlkioContestedFile", "web-0 BlkioContestedFile"
		noted("contested", interval, db, web)
		noted("lasts", reminder.Interval-interval)
		noted("lasts for ten minutes", interval, db, web)
		report = nil
		noted("no writeback part", interval)
		report = &repair.Report{}
		noted("ended", interval)
		for i := range 20 {
			report.Files = append(report.Files, file(fmt.Sprint("/", i), "db-0", "db-0"))
		}
		noted("many", interval, slices.Repeat([]string{db}, maxFiles)...)
		noted("many, which last", 5*interval)
	})
}

// TestRun verifies that the report is read again and again, until the context ends.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 5*interval+1)
		defer cancel()
		reads := 0
		New(Config{Report: func() (*repair.Report, error) { reads++; return nil, nil }}).Run(ctx)
		if reads != 5 {
			t.Errorf("%d reads", reads)
		}
	})
}
