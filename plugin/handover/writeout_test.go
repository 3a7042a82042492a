package handover

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	logtest "github.com/sirupsen/logrus/hooks/test"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/policy"
)

// fakePod notes which of its containers are written out.
type fakePod struct {
	cgroup  string
	drained bool
	events
}

func (p *fakePod) Written(id string, yes bool) { p.add("%s %t", id, yes) }
func (p *fakePod) Cgroup() string              { return p.cgroup }
func (p *fakePod) IsDrained() bool             { return p.drained }

func settingOf(disk blkio.Dev, key blkio.Key, amount blkio.Amount) policy.Settings {
	return policy.Settings{{Value: blkio.Value{Address: blkio.Address{Key: key, Dev: disk}, Amount: amount}}}
}

// TestNewPlan verifies that a plan has the disks with a limit on writes, of the container or of the pod.
func TestNewPlan(t *testing.T) {
	wbps := func(disk blkio.Dev) policy.Settings { return settingOf(disk, blkio.Wbps, 1<<20) }
	for name, tt := range map[string]struct {
		own, pod policy.Settings
		want     map[blkio.Dev]bool
	}{
		"own":   {wbps(sdb), nil, map[blkio.Dev]bool{sdb: true}},
		"both":  {wbps(sdb), wbps(sda), map[blkio.Dev]bool{sda: true, sdb: true}},
		"reads": {settingOf(sdb, blkio.Rbps, 1<<20), nil, nil},
		"max":   {settingOf(sdb, blkio.Wbps, blkio.Max), nil, nil},
	} {
		got := NewPlan(tt.own, tt.pod)
		if !maps.Equal(got.Limited, tt.want) || got.IsEmpty() != (len(tt.want) == 0) {
			t.Errorf("%s: %v", name, got.Limited)
		}
	}
}

// TestWrite verifies that a container is written out once all its filesystems are known and each sync has
// succeeded. It does not wait for a sync that takes more than a minute. The pod is tidied up once.
func TestWrite(t *testing.T) {
	a, b := Volume{Path: "/a", Disk: sda}, Volume{Path: "/b", Disk: sdb}
	for name, tt := range map[string]struct {
		unsynced Unsynced
		fails    string        // the path with a sync that fails
		take     time.Duration // of each sync
		after    time.Duration // the time until the result is checked
		want     []string
	}{
		"nothing to write":    {want: []string{"x true", "tidied"}},
		"not all is known":    {unsynced: Unsynced{More: true}, want: []string{"x false", "tidied"}},
		"under way":           {unsynced: Unsynced{Volumes: []Volume{a, b}}, take: time.Second},
		"written":             {unsynced: Unsynced{Volumes: []Volume{a, b}}, take: time.Second, after: 2 * time.Second, want: []string{"x true", "tidied"}},
		"a sync fails":        {unsynced: Unsynced{Volumes: []Volume{a, b}}, fails: "/b", want: []string{"x false", "tidied"}},
		"written but for one": {unsynced: Unsynced{Volumes: []Volume{a}, More: true}, want: []string{"x false", "tidied"}},
		"slow":                {unsynced: Unsynced{Volumes: []Volume{a}}, take: time.Hour, after: 2 * syncPatience, want: []string{"x false", "tidied"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log, _ := logtest.NewNullLogger()
				pod := &fakePod{}
				w := Writeout{Tidy: func(context.Context, Pod) { pod.add("tidied") }}
				w.Syncs.Log, w.Syncs.Sync = log, func(_ context.Context, path string) error {
					time.Sleep(tt.take)
					if path == tt.fails {
						return errors.New("input/output error")
					}
					return nil
				}
				w.Write(t.Context(), pod, "x", tt.unsynced)
				sleep(tt.after)
				if diff := cmp.Diff(tt.want, pod.taken()); diff != "" {
					t.Error(diff)
				}
				sleep(2 * time.Hour) // until all syncs have ended
				if got := pod.taken(); len(got) != 2 {
					t.Errorf("at the end: %q", got)
				}
				if syncs, waiting := w.Syncs.Pending(); syncs+waiting > 0 {
					t.Errorf("%d syncs, %d wait", syncs, waiting)
				}
			})
		})
	}
}

// TestTidy verifies that the page cache of a drained pod is dropped, and that inodes of removed cgroups are
// released where the kernel allows it. Only one pod is tidied up at a time.
func TestTidy(t *testing.T) {
	for name, tt := range map[string]struct {
		pod      *fakePod
		releases bool
		waits    time.Duration // while it waits for the turn
		want     []string
	}{
		"drained":     {&fakePod{cgroup: "pods/a", drained: true}, true, 0, []string{"reclaimed 4096", "released"}},
		"one runs":    {&fakePod{cgroup: "pods/a"}, true, 0, []string{"released"}},
		"affected":    {&fakePod{cgroup: "pods/a", drained: true}, false, 0, []string{"reclaimed 4096"}},
		"no cgroup":   {&fakePod{}, true, 0, nil},
		"its turn":    {&fakePod{cgroup: "pods/a", drained: true}, true, tidyPatience / 2, []string{"reclaimed 4096", "released"}},
		"out of turn": {&fakePod{cgroup: "pods/a", drained: true}, true, tidyPatience * 2, []string{"delayed"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dir := t.TempDir()
				for file, data := range map[string]string{"cgroup.controllers": "io memory\n", "pods/a/memory.current": "4096\n", "pods/a/memory.reclaim": ""} {
					path := filepath.Join(dir, file)
					if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(data), 0o644)); err != nil {
						t.Fatal(err)
					}
				}
				// A cgroup that cannot be removed shows that the plugin tried to.
				if err := os.MkdirAll(filepath.Join(dir, "pods/nri-blkio-release/x"), 0o755); err != nil {
					t.Fatal(err)
				}
				h, err := cgroupfs.OpenTree(dir)
				if err != nil {
					t.Fatal(err)
				}
				defer h.Close()
				log, logged := logtest.NewNullLogger()
				tidier := &Tidier{Log: log, Cgroups: h, Releases: func() bool { return tt.releases }, Turn: make(chan struct{}, 1)}
				if tt.waits > 0 {
					tidier.Turn <- struct{}{}
					time.AfterFunc(tt.waits, func() { <-tidier.Turn })
				}
				tidier.Tidy(t.Context(), tt.pod)
				var got []string
				if data, err := os.ReadFile(filepath.Join(dir, "pods/a/memory.reclaim")); err != nil {
					t.Error(err)
				} else if len(data) > 0 {
					got = append(got, fmt.Sprintf("reclaimed %s", data))
				}
				for _, e := range logged.AllEntries() {
					got = append(got, map[bool]string{true: "released", false: "delayed"}[e.Message == "Releasing files of ended containers failed"])
				}
				if !slices.Equal(got, tt.want) {
					t.Errorf("%q, want %q", got, tt.want)
				}
				sleep(tt.waits)
				if len(tidier.Turn) > 0 {
					t.Error("the turn is not given back")
				}
			})
		})
	}
}
