package main

import (
	"errors"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spf13/cobra"

	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/plugin/record"
	"github.com/nri-blkio/nri-blkio/plugin/runtimeconfig"
)

// TestCompleted verifies that words are sorted, each once, and without those that a terminal cannot show; and that a shell does not
// wait for cgroups that do not answer.
func TestCompleted(t *testing.T) {
	synctest.Test(t, testCompleted) // the machine may need longer than a shell waits
}

func testCompleted(t *testing.T) {
	host := t.TempDir()
	if err := fakeHost(host); err != nil {
		t.Fatal(err)
	}
	a := newApp()
	a.openCgroups, a.opts.cgroupRoot = cgroupfs.OpenTree, filepath.Join(host, "sys/fs/cgroup")
	words := func(r *record.Record, args []string) []string {
		return append([]string{"z", "\x1b[2J", "", r.Container}, args...)
	}
	got, directive := a.completed(words)(nil, []string{"a"}, "")
	if want := []string{"a", "db", "log", "z"}; !slices.Equal(got, want) || directive != cobra.ShellCompDirectiveNoFileComp {
		t.Errorf("got %q, %v, want %q", got, directive, want)
	}
	running := func() []*record.Record {
		return recordsOf([]runtimeconfig.Pod{{Namespace: "test", Name: "free", Containers: map[string]string{"0a": "app"}}})
	}
	for _, tt := range []struct{ args, want []string }{{nil, []string{"prod/db-0", "test/free"}}, {[]string{"free"}, []string{"app"}}} {
		got, _ := a.completed(recordedTarget, running)(nil, tt.args, "")
		if !slices.Equal(got, tt.want) {
			t.Errorf("with the pods that run: %q after %q, want %q", got, tt.args, tt.want)
		}
	}
	ended := make(chan struct{})
	defer close(ended)
	a.openCgroups = func(string) (*cgroupfs.Hierarchy, error) {
		<-ended
		return nil, errors.ErrUnsupported
	}
	begin := time.Now()
	if got, _ := a.completed(words)(nil, nil, ""); len(got) > 0 || time.Since(begin) != completionTime {
		t.Errorf("got %q after %s", got, time.Since(begin))
	}
}
