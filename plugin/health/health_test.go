package health

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio/hostfs"
)

func TestWriteAndRead(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "absent")
	if r, err := Read(dir, Limits); r != nil || err != nil {
		t.Errorf("without a file: %v, %v", r, err)
	}
	want := Report{Part: Limits, At: time.Now().UTC().Truncate(time.Second), State: Connected, Runtime: "containerd 2", Pods: 3}
	if err := hostfs.WriteJSON(File(dir, Limits), &want); err != nil {
		t.Fatal(err)
	}
	got, err := Read(dir, Limits)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(&want, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	want.At = want.At.Add(-time.Hour)
	if err := hostfs.WriteJSON(File(dir, Limits), &want); err != nil {
		t.Fatal(err)
	}
	if r, err := Read(dir, Limits); r != nil || err != nil {
		t.Errorf("an old report: %v, %v", r, err)
	}
	if err := os.WriteFile(File(dir, Limits), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(dir, Limits); err == nil {
		t.Error("a broken report is no error")
	}
}

// TestPublish verifies that the file has the state of an instance that is active, and is removed when that
// ends. An instance on standby leaves the file alone.
func TestPublish(t *testing.T) {
	file := File(t.TempDir(), Limits)
	if err := os.WriteFile(file, []byte("the active one's"), 0o600); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		var state atomic.Value
		state.Store(Standby)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			Publish(ctx, file, func() Report { return Report{State: state.Load().(string)} }, func(err error) {
				if err != nil {
					t.Error(err)
				}
			})
		}()
		time.Sleep(3 * Interval)
		if data, _ := os.ReadFile(file); string(data) != "the active one's" {
			t.Errorf("an instance on standby has written %q", data)
		}
		state.Store(Disconnected)
		time.Sleep(2 * Interval)
		var r Report
		if _, err := hostfs.ReadJSON(file, &r); err != nil || r.State != Disconnected || !r.At.Equal(time.Now().UTC()) && IsOld(r.At, r.SinceBoot) {
			t.Errorf("read %v, %v", r, err)
		}
		cancel()
		<-ended
		if _, err := os.Stat(file); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("after the end: %v", err)
		}
	})
}

// TestPublishFails verifies that the caller gets each failure, and the end of the failures.
func TestPublishFails(t *testing.T) {
	dir := t.TempDir()
	blocked := filepath.Join(dir, "blocked")
	if err := os.WriteFile(blocked, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		errs := make(chan error, 8)
		go Publish(ctx, filepath.Join(blocked, "limits.json"), func() Report { return Report{State: Connected} }, func(err error) { errs <- err })
		if err := <-errs; err == nil {
			t.Error("no error")
		}
		if err := os.Remove(blocked); err != nil {
			t.Fatal(err)
		}
		if err := <-errs; err != nil {
			t.Error(err)
		}
		cancel()
		synctest.Wait()
	})
}

// TestIsOld verifies that a report describes the present for ten seconds, so that a part that writes one every
// two seconds can be late. A jump of the node's clock does not change its age. A report of an earlier boot is
// old. The age of a report without the time since the boot is measured by the clock.
func TestIsOld(t *testing.T) {
	const jump = time.Hour
	for _, tt := range []struct {
		name   string
		jumped time.Duration
		ago    time.Duration
		boot   bool // the report has the time since the boot
		want   bool
	}{
		{"new", 0, time.Second, true, false},
		{"late", 0, 4 * Interval, true, false},
		{"old", 0, maxAge + time.Second, true, true},
		{"new, before the clock was set back", -jump, time.Second, true, false},
		{"old, before the clock was set back", -jump, maxAge + time.Second, true, true},
		{"new, before the clock was set ahead", jump, time.Second, true, false},
		{"old, before the clock was set ahead", jump, maxAge + time.Second, true, true},
		{"of another boot", 0, -time.Hour, true, true},
		{"new, since boot unknown", 0, time.Second, false, false},
		{"old, since boot unknown", 0, maxAge + time.Second, false, true},
	} {
		at, sinceBoot := time.Now().Add(-tt.jumped-tt.ago), time.Duration(0)
		if tt.boot {
			sinceBoot = hostfs.SinceBoot() - tt.ago
		}
		if got := IsOld(at, sinceBoot); got != tt.want {
			t.Errorf("%s: old is %t, want %t", tt.name, got, tt.want)
		}
	}
	if !IsOld(time.Time{}, 0) {
		t.Error("a report without a time is not old")
	}
}

// TestReportFormat verifies that the file is read by other versions of the program, which know the fields by
// their names. Fields of a later version are ignored.
func TestReportFormat(t *testing.T) {
	at := time.Date(2026, 11, 23, 9, 30, 0, 0, time.UTC)
	least := `{"part":"limits","at":"2026-11-23T09:30:00Z","started":"2026-11-23T09:30:00Z","pid":7,"version":"v1","state":"connected","since":"2026-11-23T09:30:00Z","pods":0,"podsNotInForce":0,"containersFailed":0}`
	all := strings.TrimSuffix(strings.Replace(least, `"started"`, `"sinceBoot":1000000000,"started"`, 1), `"pods":0,"podsNotInForce":0,"containersFailed":0}`) +
		`"reason":"r","runtime":"cri-o 1","policy":"/p","policyOfRuntime":true,"mode":"observe","pods":1,"podsNotInForce":2,"containersFailed":3,` +
		`"weights":{"disks":[{"disk":"vdb","dev":"254:16","by":"bfq","enabled":true,"reason":"r","model":"policy","qos":"fixed","vrate":87.5,"error":"e","kept":"k","follow":{"state":"moved","reason":"r","model":"m"}}],` +
		`"shares":[{"namespace":"n","pod":"p","container":"c","disk":"vdb","weight":200,"scaled":12.5,"share":0.25,"reason":"r","chosen":true}],"sharesLeftOut":4,"skipped":["a: b"]}}`
	r := Report{Part: Limits, At: at, Started: at, PID: 7, Version: "v1", State: Connected, Since: at}
	full := r
	full.Reason, full.Runtime, full.Policy, full.PolicyOfRuntime, full.Mode = "r", "cri-o 1", "/p", true, "observe"
	full.SinceBoot, full.Pods, full.NotInForce, full.Failed = time.Second, 1, 2, 3
	full.Weights = &Weights{
		Disks:         []CostDisk{{"vdb", "254:16", "bfq", true, "r", "policy", "fixed", 87.5, "e", "k", &Follow{"moved", "r", "m"}}},
		Shares:        []Share{{"n", "p", "c", "vdb", 200, 12.5, 0.25, "r", true}},
		SharesLeftOut: 4, Skipped: []string{"a: b"},
	}
	for want, r := range map[string]Report{least: r, all: full} {
		got, err := json.Marshal(&r)
		if err != nil || string(got) != want {
			t.Errorf("%v\ngot  %s\nwant %s", err, got, want)
		}
		var again Report
		err = json.Unmarshal([]byte(strings.Replace(want, "{", `{"ofLaterVersion":{"x":[1]},`, 1)), &again)
		if diff := cmp.Diff(r, again); err != nil || diff != "" {
			t.Errorf("%v, -want +got:\n%s", err, diff)
		}
	}
}

// TestPartsApart verifies that each part has a file of its own, so that none replaces or removes that of
// another.
func TestPartsApart(t *testing.T) {
	dir := t.TempDir()
	parts := []string{Limits, Writeback, Validator}
	for i, part := range parts {
		if err := hostfs.WriteJSON(File(dir, part), &Report{Part: part, At: time.Now(), PID: i}); err != nil {
			t.Fatal(err)
		}
	}
	for i, part := range parts {
		if r, err := Read(dir, part); err != nil || r == nil || r.Part != part || r.PID != i {
			t.Errorf("%s: %+v, %v", part, r, err)
		}
	}
	if got := File("/run/nri-blkio", Writeback); got != "/run/nri-blkio/writeback.json" {
		t.Error(got)
	}
}
