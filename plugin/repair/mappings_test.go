package repair

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/nri-blkio/nri-blkio/blkio/writeback"
)

// TestMappingsReads verifies that one account cannot use more than its part of the reads of mappings.
func TestMappingsReads(t *testing.T) {
	m := newMappings(nil, "")
	for i := range maxReaders {
		if !m.enter("evil", strconv.Itoa(i)) {
			t.Fatalf("cgroup %d of an account is not read, although at most %d are", i, maxReaders)
		}
	}
	if m.enter("evil", "more") || !m.enter("victim", "v") || m.enter("victim", "v") {
		t.Error("an account uses the readers of others, or a cgroup is read twice at a time")
	}
	m.exit("evil", "0", nil)
	if !m.enter("evil", "more") {
		t.Error("a reader that has ended still counts")
	}
}

// TestMappingsBounded verifies that the number of readers of mappings is bounded, so that pods that block their
// readers cannot use up the threads of the process.
func TestMappingsBounded(t *testing.T) {
	m := newMappings(nil, "")
	entered := 0
	for i := range 2 * maxAllReaders {
		if m.enter(account(strconv.Itoa(i/maxReaders)), strconv.Itoa(i)) {
			entered++
		}
	}
	if entered != maxAllReaders {
		t.Errorf("%d cgroups are read, want %d", entered, maxAllReaders)
	}
	m.exit("0", "0", nil)
	if !m.enter("victim", "v") {
		t.Error("no cgroup can be read after a reader has ended")
	}
}

// pagedOut is a mappings whose processes are those of a test's cgroup.procs, and the calls
// for them.
type pagedOut struct {
	*mappings
	pids  []int
	limit []int
}

func newPagedOut(t *testing.T, procs string, process func(pid int) (read int, err error)) *pagedOut {
	t.Helper()
	tree := testTree(t, nil)
	if err := os.MkdirAll(filepath.Join(tree.dir, "c"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(tree.dir, "c", "cgroup.procs"), []byte(procs), 0o644); err != nil {
		t.Fatal(err)
	}
	p := &pagedOut{mappings: newMappings(tree, "/proc")}
	p.process = func(_ string, pid int, _ writeback.Inode, _, _ int64, limit int) (int, error) {
		p.pids, p.limit = append(p.pids, pid), append(p.limit, limit)
		return process(pid)
	}
	return p
}

// TestPageOutOf verifies that pages of all processes of a container are paged out, as far as that is allowed.
func TestPageOutOf(t *testing.T) {
	many := &strings.Builder{}
	for pid := 1; pid <= 2*maxMappers; pid++ {
		fmt.Fprintln(many, pid)
	}
	reads := func(bytes int, err error) func(int) (int, error) {
		return func(int) (int, error) { return bytes, err }
	}
	for _, tt := range []struct {
		name    string
		procs   string
		process func(pid int) (int, error)
		calls   int
		want    error
	}{
		{"all", "10\n11\n12\n", reads(100, nil), 3, nil},
		{"none", "", reads(0, nil), 0, nil},
		{"some processes of many", many.String(), reads(100, nil), maxMappers, nil},
		{"long lists", "10\n11\n12\n", reads(maxMaps/2, nil), 2, nil},
		{"processes that have ended", "10\n11\n", reads(0, fs.ErrNotExist), 2, nil},
		{"no capability", "10\n11\n", reads(0, fs.ErrPermission), 1, errNoAccess},
		{"another PID namespace", "0\n0\n", reads(0, nil), 0, errOtherPIDs},
		{"not a list of processes", "x\n", reads(0, nil), 0, nil},
	} {
		p := newPagedOut(t, tt.procs, tt.process)
		if err := p.pageOutOf(writeback.Inode{Number: 1}, "c", 0, 1); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, err, tt.want)
		}
		if len(p.pids) != tt.calls {
			t.Errorf("%s: %d processes, want %d", tt.name, len(p.pids), tt.calls)
		}
		for i, limit := range p.limit {
			if i == 0 && limit != maxMaps || i > 0 && limit > p.limit[i-1] {
				t.Errorf("%s: the limits are %v", tt.name, p.limit)
			}
		}
	}
	p := newPagedOut(t, "10\n", reads(0, nil))
	if err := p.pageOutOf(writeback.Inode{}, "gone", 0, 1); err != nil || len(p.pids) > 0 {
		t.Errorf("a cgroup that is gone: %v, %v", err, p.pids)
	}
}

// TestPageOutWaits verifies that a process that holds its memory map delays only its own cgroup.
func TestPageOutWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		held := make(chan struct{})
		p := newPagedOut(t, "10\n", func(int) (int, error) {
			<-held
			return 0, fs.ErrPermission
		})
		p.pageOut("pod", writeback.Inode{}, []string{"c"}, 0, 1)
		synctest.Wait()
		p.pageOut("pod", writeback.Inode{}, []string{"c", "gone"}, 0, 1)
		synctest.Wait()
		if len(p.pids) != 1 || !p.busy["c"] || p.busy["gone"] || p.access() != nil {
			t.Errorf("asked for %v, busy are %v, %v", p.pids, p.busy, p.access())
		}
		close(held)
		synctest.Wait()
		if len(p.busy) > 0 || len(p.byAccount) > 0 || !errors.Is(p.access(), errNoAccess) {
			t.Errorf("busy are %v of %v, %v", p.busy, p.byAccount, p.access())
		}
		p.process = func(string, int, writeback.Inode, int64, int64, int) (int, error) { return 0, nil }
		p.pageOut("pod", writeback.Inode{}, []string{"c"}, 0, 1)
		synctest.Wait()
		if p.access() != nil {
			t.Errorf("there is access: %v", p.access())
		}
	})
}
