package why

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/wait"
	"github.com/nri-blkio/nri-blkio/plugin/record"
	"github.com/nri-blkio/nri-blkio/policy"
)

// The cgroups of a node: a pod with a container, a neighbour, and one that was removed.
const (
	podID, dbID, otherID, otherAppID, goneID, endedID, aboveID = 10, 11, 20, 21, 30, 31, 40
)

var vdb = blkio.Dev{Major: 254, Minor: 16}

const slice = "kubepods.slice/kubepods-pod1.slice"

func measured() Measured {
	pod := Subject{Namespace: "prod", Pod: "db-0", Cgroup: slice}
	db := Subject{Namespace: "prod", Pod: "db-0", Container: "db", Cgroup: slice + "/cri-containerd-a.scope"}
	other := Subject{Namespace: "team-b", Pod: "batch", Cgroup: "kubepods.slice/kubepods-pod2.slice"}
	half := 0.5
	limited := wait.DiskUse{Dev: vdb, Rates: [blkio.NumLimits]float64{blkio.Wbps: 1 << 20}}
	limited.Limits[blkio.Wbps] = 1 << 20
	setting := policy.Setting{
		Value:  blkio.Value{Address: blkio.Address{Key: blkio.Wbps, Dev: vdb}, Amount: 1 << 20},
		Source: policy.Source{Kind: policy.FromAnnotation, Name: "limits.blkio.noderesource.dev/container.db", Entry: 1},
	}
	return Measured{
		Target: db, Duration: 10 * time.Second,
		Within: map[uint64]bool{dbID: true},
		Times:  wait.Times{Duration: 10 * time.Second, At: map[wait.Place]wait.Time{}},
		Cgroups: []Cgroup{
			{
				Subject: db, Activity: wait.Activity{Duration: 10 * time.Second, Disks: []wait.DiskUse{limited}, Some: &half},
				Record: &record.Record{Settings: policy.NewSettings(setting)},
			},
			{Subject: pod, Activity: wait.Activity{Disks: []wait.DiskUse{{Dev: vdb, Rates: limited.Rates}}}, Unwritten: 1 << 20},
			{Subject: other, Activity: wait.Activity{Disks: []wait.DiskUse{{Dev: vdb, Rates: [blkio.NumLimits]float64{blkio.Rbps: 3 << 20}}}}, Unwritten: 300 << 20},
		},
		Subjects: map[uint64]Subject{
			podID: pod, dbID: db, otherID: other, 0: {}, 1: {Cgroup: "."}, goneID: {},
			otherAppID: {Namespace: "team-b", Pod: "batch", Container: "app", Cgroup: other.Cgroup + "/b"},
			endedID:    {Namespace: "prod", Pod: "db-0", Container: "init", Ended: true},
		},
		Disks: map[blkio.Dev]string{vdb: "vdb"},
	}
}

var update = flag.Bool("update", false, "write the golden files")

const d = 8 * time.Second

// own is a place where I/O of the container spent its time.
func own(c wait.Cause, by uint64, op wait.Op) wait.Place {
	return wait.Place{Cause: c, Op: op, Cgroup: dbID, By: by, Dev: vdb}
}

// waits adds that a thread of the container waits.
func waits(m *Measured, c wait.Cause, by uint64) {
	at := own(c, by, wait.None)
	if c == wait.IO {
		at.Dev = blkio.Dev{}
	}
	m.Times.At[at] = wait.Time{Sum: d, Count: 1}
}

// answered are what is measured, by the names of the golden files.
var answered = map[string]func(m *Measured){
	"own-limit": func(m *Measured) {
		waits(m, wait.IO, 0)
		m.Times.At[own(wait.Limit, dbID, wait.Direct)] = wait.Time{Sum: d, Wall: d}
	},
	"limit-and-disk": func(m *Measured) {
		waits(m, wait.IO, 0)
		m.Times.At[own(wait.Limit, dbID, wait.Direct)] = wait.Time{Sum: d, Wall: d}
		m.Times.At[own(wait.Device, 0, wait.Direct)] = wait.Time{Sum: 3 * d}
		m.Times.At[wait.Place{Cause: wait.Device, Op: wait.Read, Cgroup: otherAppID, Dev: vdb}] = wait.Time{Sum: 9 * d}
	},
	"queue-and-disk": func(m *Measured) { // of which the limit is a part, but the disk the most together
		waits(m, wait.IO, 0)
		m.Times.At[own(wait.Limit, dbID, wait.Direct)] = wait.Time{Sum: d, Wall: d}
		m.Times.At[own(wait.Device, 0, wait.Direct)] = wait.Time{Sum: 3 * d / 4}
		m.Times.At[own(wait.Scheduler, 0, wait.Direct)] = wait.Time{Sum: 3 * d / 4}
	},
	"limit-of-pod-not-ours": func(m *Measured) {
		waits(m, wait.IO, 0)
		m.Cgroups[1].Activity.Disks[0].Limits[blkio.Wbps] = 1 << 20
		m.Times.At[own(wait.Limit, podID, wait.Direct)] = wait.Time{Sum: d, Wall: d}
	},
	"share": func(m *Measured) { waits(m, wait.Cost, 0) },
	"reserve": func(m *Measured) {
		waits(m, wait.Cost, 0)
		m.Subjects[aboveID] = Subject{Cgroup: "system.slice/backup.service"}
		m.Times.At[wait.Place{Cause: wait.Device, Op: wait.Read, Cgroup: aboveID, Dev: vdb}] = wait.Time{Sum: 3 * d}
		m.Times.At[own(wait.Device, 0, wait.Read)] = wait.Time{Sum: d}
	},
	"limit-and-cpu": func(m *Measured) {
		waits(m, wait.IO, 0)
		m.Times.At[own(wait.Limit, dbID, wait.Direct)] = wait.Time{Sum: d, Wall: d}
		cpu := 0.8
		m.CPU = &cpu
	},
	"dirty-node":  func(m *Measured) { waits(m, wait.DirtyNode, dbID) },
	"predecessor": func(m *Measured) { waits(m, wait.Writeback, endedID) },
	"other-owner-limited": func(m *Measured) {
		waits(m, wait.Writeback, otherAppID)
		m.Times.At[wait.Place{Cause: wait.Limit, Op: wait.WriteOut, Cgroup: otherAppID, By: otherAppID, Dev: vdb}] = wait.Time{Sum: d, Wall: d}
	},
	"journal": func(m *Measured) { waits(m, wait.Journal, 0) },
	"nothing": func(m *Measured) {
		none, some := 0.0, 0.62
		m.Cgroups[0].Some, m.CPU = &none, &some
	},
	"no-bpf": func(m *Measured) { m.NoWaits = errors.New("operation not permitted") },
	"reads-limited": func(m *Measured) { // and writes, which no thread waits for, are at their limit too
		waits(m, wait.IO, 0)
		m.Cgroups[0].Disks[0].Limits[blkio.Riops], m.Cgroups[0].Disks[0].Rates[blkio.Riops] = 100, 90
		m.Times.At[own(wait.Limit, dbID, wait.Read)] = wait.Time{Sum: d, Wall: d}
	},
	"limit-above": func(m *Measured) {
		waits(m, wait.IO, 0)
		m.Subjects[aboveID] = Subject{Cgroup: "kubepods.slice"}
		m.Times.At[own(wait.Limit, aboveID, wait.Direct)] = wait.Time{Sum: d, Wall: d}
		above := wait.DiskUse{Dev: vdb, Rates: [blkio.NumLimits]float64{blkio.Wbps: 9 << 20}}
		above.Limits[blkio.Wbps] = 10 << 20
		m.Cgroups = append(m.Cgroups, Cgroup{Subject: m.Subjects[aboveID], Activity: wait.Activity{Disks: []wait.DiskUse{above}}})
	},
	"limit-of-unnamed-container": func(m *Measured) { // it began meanwhile, or the runtime does not answer
		m.Target, m.Within = m.Subjects[podID], map[uint64]bool{podID: true, dbID: true}
		m.Cgroups[0], m.Cgroups[1] = m.Cgroups[1], m.Cgroups[0]
		m.Subjects[dbID] = Subject{Namespace: "prod", Pod: "db-0", Cgroup: slice + "/cri-containerd-a.scope"}
		waits(m, wait.IO, 0)
		m.Times.At[own(wait.Limit, dbID, wait.Direct)] = wait.Time{Sum: d, Wall: d}
	},
	"limit-of-made-cgroup": func(m *Measured) { // its own wbps=1Mi did not hold it
		m.Within[aboveID] = true
		m.Subjects[aboveID] = Subject{Namespace: "prod", Pod: "db-0", Container: "db", Cgroup: slice + "/cri-containerd-a.scope/own"}
		waits(m, wait.IO, 0)
		m.Times.At[own(wait.Limit, aboveID, wait.Direct)] = wait.Time{Sum: d, Wall: d}
	},
	"own-data-unknown": func(m *Measured) { waits(m, wait.Writeback, dbID) },
	"hung-disk":        func(*Measured) {}, // all threads have waited since before the measurement
	"hung-disk-and-another": func(m *Measured) {
		m.Times.At[own(wait.Journal, 0, wait.None)] = wait.Time{Sum: d / 8}
	},
	"many-threads": func(m *Measured) {
		m.Times.At[own(wait.IO, 0, wait.None)] = wait.Time{Sum: 1234 * 10 * time.Second}
		m.Times.At[own(wait.Device, 0, wait.Read)] = wait.Time{Sum: d}
		m.Times.At[wait.Place{Cause: wait.Device, Op: wait.WriteOut, Cgroup: 1, Dev: vdb}] = wait.Time{Sum: d}
	},
	"many-disks": func(m *Measured) {
		waits(m, wait.IO, 0)
		for i := range uint32(200) {
			dev := blkio.Dev{Major: 7, Minor: i}
			m.Times.At[wait.Place{Cause: wait.Device, Op: wait.Read, Cgroup: dbID, Dev: dev}] = wait.Time{Sum: d}
			m.Disks[dev] = fmt.Sprintf("loop%d", i)
		}
	},
	"no-bpf-no-io": func(m *Measured) {
		m.NoWaits = errors.New("operation not permitted")
		m.Cgroups[0].Disks = nil
	},
	"no-bpf-no-pressure": func(m *Measured) {
		m.NoWaits = errors.New("operation not permitted")
		m.Cgroups[0].Some, m.Cgroups[0].Disks[0].Limits = nil, blkio.Limits{}
	},
	"no-io-hook": func(m *Measured) { m.Unknown = map[wait.Cause]error{wait.IO: errors.New("no io_schedule")} },
	"no-dirty-hook": func(m *Measured) { // its time seems to be that of I/O
		m.Times.Mixed, m.Unknown = true, map[wait.Cause]error{wait.DirtyNode: errors.New("no balance_dirty_pages"), wait.DirtyCgroup: errors.New("no balance_dirty_pages")}
		waits(m, wait.IO, 0)
		m.Times.At[own(wait.Limit, dbID, wait.WriteOut)] = wait.Time{Sum: d, Wall: d}
	},
	"no-journal-hook": func(m *Measured) {
		none := 0.0
		m.Cgroups[0].Some, m.Unknown = &none, map[wait.Cause]error{wait.Journal: errors.New("no jbd2_log_wait_commit")}
	},
	"unsampled": func(m *Measured) { // no thread's stack could be read
		none := 0.0
		m.Cgroups[0].Some, m.Unsampled = &none, errors.New("this needs CAP_SYS_ADMIN: run it as root on the node")
	},
	"no-bpf-nothing": func(m *Measured) {
		none, some := 0.0, 0.5
		m.Cgroups[0].Some, m.CPU, m.NoWaits = &none, &some, errors.New("operation not permitted")
	},
	"completions-of-sockets": func(m *Measured) { m.Times.At[own(wait.Async, 0, wait.None)] = wait.Time{Sum: d} }, // of io_uring: the pressure is theirs
	"hook-missing":           func(m *Measured) { m.Unknown = map[wait.Cause]error{wait.Limit: errors.New("no __blk_throtl_bio")} },
}

// TestExplain compares the answers with golden files.
func TestExplain(t *testing.T) {
	for name, set := range answered {
		t.Run(name, func(t *testing.T) {
			m := measured()
			set(&m)
			a := Explain(m)
			parts := 0.0
			for i := range a.Causes {
				parts += a.Causes[i].Part
			}
			if (a.Cause == NothingOfDisks || a.Cause == Unseen) != (parts == 0) || parts > 1+1e-9 {
				t.Errorf("%s: the parts add up to %v", a.Cause, parts)
			}
			compareGolden(t, name, a)
		})
	}
}

// compareGolden compares a document with its golden file, or writes that with -update. It returns the document.
func compareGolden(t *testing.T, name string, document any) string {
	t.Helper()
	got, err := json.MarshalIndent(document, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	file := "testdata/" + name + ".json"
	if *update {
		if err := os.WriteFile(file, append(got, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if strings.TrimSpace(string(want)) != string(got) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	return string(got)
}
