package wait

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sys/unix"
)

func TestSample(t *testing.T) {
	proc := t.TempDir()
	for name, text := range map[string][2]string{
		"7/task/7": {"7 (a) D (b) D 1 7", "[<0>] balance_dirty_pages+0x3b2/0xa90\n[<0>] generic_perform_write+0x1c2/0x220\n"},
		"7/task/8": {"8 (fsync) D 1 7", "[<0>] folio_wait_bit_common+0x13d/0x350\n[<0>] folio_wait_writeback+0x2c/0x80\n[<0>] do_fsync+0x38/0x70\n"},
		"7/task/9": {"9 (commit) D 1 7", "[<0>] jbd2_log_wait_commit+0xe6/0x150 [jbd2]\n[<0>] ext4_sync_file+0x1ae/0x380 [ext4]\n"},
		"7/task/6": {"6 (direct) D 1 7", "[<0>] __iomap_dio_rw+0x5d0/0x840\n[<0>] iomap_dio_rw+0x12/0x40\n[<0>] ext4_file_write_iter+0x35e/0x9b0\n"}, // seen on 6.12
		"9/task/9": {"9 (D ) S 1 9", ""},
		"9/task/1": {"1 (lock) D 1 9", "[<0>] rwsem_down_write_slowpath+0x2b2/0x6f0\n"},
	} {
		dir := filepath.Join(proc, name)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		for file, content := range map[string]string{"stat": text[0], "stack": text[1]} {
			if err := os.WriteFile(filepath.Join(dir, file), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := os.Mkdir(filepath.Join(proc, "9/task/2"), 0o700); err != nil { // it ends while it is sampled
		t.Fatal(err)
	}
	var got Samples
	if err := got.Sample(proc, []int{7, 8, 9}); err != nil {
		t.Fatal(err)
	}
	want := Samples{Threads: 6, Waiting: 5, By: map[Cause]int{DirtyNode: 1, Writeback: 1, Journal: 1, IO: 1}}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(Samples{})); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
	if err := os.WriteFile(filepath.Join(proc, "9/task/3"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := got.Sample(proc, []int{9}); err == nil || !strings.HasPrefix(err.Error(), "sample the threads of process 9: ") {
		t.Errorf("of a file: %v", err)
	}
}

// TestSampleSince verifies that a thread counts only if it has not run between two samples.
func TestSampleSince(t *testing.T) {
	at := func(runs string) Samples {
		return Samples{threads: map[string]waiting{"/proc/7/task/7": {Journal, " 5\n"}, "/proc/7/task/8": {Journal, runs}, "/proc/7/task/9": {Journal, ""}}}
	}
	earlier, later := at(" 1\n"), at(" 2\n")
	if diff := cmp.Diff(map[Cause]int{Journal: 1}, later.Since(&earlier)); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
}

// TestMaySample verifies that a stack which cannot be read is told.
func TestMaySample(t *testing.T) {
	proc := t.TempDir()
	if err := MaySample(proc); err != nil {
		t.Errorf("a kernel without stacks: %v", err)
	}
	var has [2]unix.CapUserData
	if err := unix.Capget(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &has[0]); err != nil {
		t.Fatal(err)
	}
	isRoot := has[0].Effective>>unix.CAP_SYS_ADMIN&1 == 1
	if err := MaySample("/proc"); (err == nil) != isRoot {
		t.Errorf("with CAP_SYS_ADMIN %t: %v", isRoot, err)
	}
}
