package writeback

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio/writeback"
	"github.com/nri-blkio/nri-blkio/plugin/repair"
	"github.com/nri-blkio/nri-blkio/test/e2e/cgroup"
	"github.com/nri-blkio/nri-blkio/test/e2e/lab"
)

// contest creates a file as b, and starts to write to it as a until the end of the test.
func contest(t *testing.T, fs string, a, b lab.Writer) (file string) {
	t.Helper()
	file = lab.File(t, fs, "f")
	b.Writes(file, 8, "1M", "conv=notrunc,fsync")
	lab.AwaitWatched(t, fs)
	a.Starts(lab.WaysToWrite[0].Command(file)...)
	return file
}

// reported waits until the report has a file in a state, with writers, and returns it.
func reported(t *testing.T, state repair.State) repair.File {
	t.Helper()
	var found repair.File
	lab.Eventually(t, "the report has a file in state "+string(state), func() error {
		r := lab.Report(t)
		for _, f := range r.Files {
			if f.State == state && len(f.Writers) > 0 {
				found = f
				return nil
			}
		}
		return fmt.Errorf("the report has no file in state %s: %+v", state, r)
	})
	return found
}

// TestRepairObserves verifies that, in mode observe, the report has the owner and the writers of a file, and
// that no file is moved.
func TestRepairObserves(t *testing.T) {
	lab.StartRepair(t, "--mode", "observe")
	a, b := lab.NewWriter(t, "a"), lab.NewWriter(t, "b")
	a.Limit("ext4", 4*lab.MiB)
	file := contest(t, "ext4", a, b)
	lab.Eventually(t, "the report has what is misplaced", func() error { // the first one may be of the first pages
		got := reported(t, repair.StateWaiting)
		if got.Owner.CgroupID != b.ID || got.Writers[0].CgroupID != a.ID || got.Writers[0].Container != a.Name || got.Writers[0].Share < 0.99 || got.Misplaced < lab.MiB {
			return fmt.Errorf("report of the file is %+v, want owner %d, writer %d with a share of at least 0.99, and at least 1 MiB misplaced", got, b.ID, a.ID)
		}
		return nil
	})
	// As long as that takes otherwise, and more.
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if o := lab.OwnerOf(t, file); o.CgroupID != b.ID {
			t.Fatalf("in mode observe the file moved to %+v, want owner %d", o, b.ID)
		}
	}
	text, err := lab.Command(t, "status")
	if err != nil || !strings.Contains(text, b.Name) || !strings.Contains(text, "test/pod "+a.Name+" 100%") || !strings.Contains(text, "mode observe") {
		t.Errorf("status: %v: %s", err, text)
	}
	var out struct{ Writeback repair.Report }
	text, err = lab.Command(t, "status", "-o", "json")
	if err == nil {
		err = json.Unmarshal([]byte(text), &out)
	}
	if err != nil || out.Writeback.Mode != repair.ModeObserve || len(out.Writeback.Files) != 1 {
		t.Errorf("status -o json: %v: %s", err, text)
	}
}

// TestRepairBudget verifies that a file moves to its writer although the writer writes and syncs more than the
// budget allows to write out early. Data that the writer has synced is not written out early and must not
// count: each pass would delay the next one.
func TestRepairBudget(t *testing.T) {
	lab.StartRepair(t, "--policy", lab.PolicyFile(t, "writeback: {budget: {extraBps: 4Mi}}\n"))
	reader, err := writeback.NewOwnerReader()
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	for range 3 {
		lab.Switches(t, reader, "ext4", lab.WayUnlinked)
	}
}

// TestRepairContested verifies that a file that two cgroups keep writing to is reported as contested. It keeps
// its owner, or moves to the writer with the smallest limit.
func TestRepairContested(t *testing.T) {
	for _, rule := range []string{"majority", "strict"} {
		t.Run(rule, func(t *testing.T) {
			p := lab.StartRepair(t, "--policy", lab.PolicyFile(t, "writeback: {contested: "+rule+"}\n"))
			a, b := lab.NewWriter(t, "a"), lab.NewWriter(t, "b")
			a.Limit("ext4", 2*lab.MiB)
			b.Limit("ext4", 8*lab.MiB)
			file := contest(t, "ext4", a, b)
			b.Starts(lab.WaysToWrite[0].Command(file)...)
			got := reported(t, repair.StateContested)
			if len(got.Writers) != 2 {
				t.Errorf("report of the contested file is %+v, want two writers", got)
			}
			if rule == "strict" {
				lab.Eventually(t, "the file belongs to the writer with the smallest limit", func() error {
					if o := lab.OwnerOf(t, file); o.CgroupID != a.ID {
						return fmt.Errorf("the owner is %+v, want cgroup %d", o, a.ID)
					}
					return nil
				})
			}
			// It does not go to and fro: at first at most once, then after a rest.
			moves := p.Count("Moved a file to its writer")
			time.Sleep(5 * time.Second)
			if n := p.Count("Moved a file to its writer") - moves; n > 3 {
				t.Errorf("the file was moved %d times in 5 s, want at most 3", n)
			}
		})
	}
}

// TestRepairElsewhere verifies that files without a limited writer are not moved, also on a watched filesystem.
func TestRepairElsewhere(t *testing.T) {
	lab.StartRepair(t)
	limited, c, d := lab.NewWriter(t, "limited"), lab.NewWriter(t, "c"), lab.NewWriter(t, "d")
	limited.Limit("ext4", 4*lab.MiB)
	file := contest(t, "ext4", d, c)
	for end := time.Now().Add(4 * time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if o := lab.OwnerOf(t, file); o.CgroupID != c.ID {
			t.Fatalf("the file moved to %+v, want owner %d", o, c.ID)
		}
	}
	if files := lab.Report(t).Files; len(files) > 0 {
		t.Errorf("the report lists %+v, want no file", files)
	}
}

// TestRepairOfTheDead verifies that a file of a removed cgroup moves to its writer.
func TestRepairOfTheDead(t *testing.T) {
	lab.StartRepair(t)
	reader, err := writeback.NewOwnerReader()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { reader.Close() }) // the parallel cases run after this function
	for _, fs := range filesystemsWithOwners {
		t.Run(fs, func(t *testing.T) {
			besideOthers(t)
			a, b := lab.NewWriter(t, fs+"-next"), lab.NewWriter(t, fs+"-old")
			a.Limit(fs, 4*lab.MiB)
			b.Limit(fs, 2*lab.MiB)
			file := lab.File(t, fs, "f")
			b.Writes(file, 4, "1M", "conv=notrunc,fsync")
			b.Remove()
			lab.AwaitWatched(t, fs)
			f, err := os.Open(file)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			began := time.Now()
			a.Starts(lab.WaysToWrite[0].Command(file)...)
			lab.Eventually(t, "the file belongs to its writer", func() error {
				if o, err := reader.Owner(f); err != nil || o.Cgroup != a.ID {
					return fmt.Errorf("the owner is %+v, want cgroup %d (%w)", o, a.ID, err)
				}
				return nil
			})
			t.Logf("%v", time.Since(began).Round(time.Millisecond))
		})
	}
}

// TestRepairForbidden verifies that, without access to BPF, the plugin logs the reason once and serves limits.
// The writeback part alone behaves the same, and status and the probe show the reason.
func TestRepairForbidden(t *testing.T) {
	p := lab.LaunchAs(t, []string{"setpriv", "--bounding-set=-perfmon,-bpf,-sys_admin", "--inh-caps=-all"}, "--state-dir", t.TempDir())
	p.Await(t, lab.LogServing, 1)
	const unavailable = "Writeback repair is unavailable"
	p.Await(t, unavailable, 1)  // it loads its programs after the registration
	time.Sleep(2 * time.Second) // two passes
	if n := p.Count(unavailable); n != 1 {
		t.Errorf("the log says %d times that repair is unavailable, want once", n)
	}
	p.Kill(t)
	for _, by := range [][]string{
		{"setpriv", "--bounding-set=-perfmon,-bpf,-sys_admin", "--inh-caps=-all"},
		{"unshare", "--mount", "sh", "-c", `mount -t tmpfs none /sys/kernel/btf && exec "$@"`, "sh"}, // a kernel without BTF
	} {
		state := t.TempDir()
		p = lab.LaunchAs(t, by, "--only", "writeback", "--state-dir", state)
		p.Await(t, "the writeback owner of files cannot be read", 1)
		if text, err := lab.Command(t, "status", "--state-dir", state, "--ready", "writeback"); err != nil || !strings.Contains(text, "unavailable") {
			t.Errorf("status --ready writeback: %q, error %v, want success and the word unavailable", text, err)
		}
		p.Signal(t, syscall.SIGTERM)
		if status := p.Wait(t); status != 0 || p.Count("the writeback owner of files cannot be read") != 1 {
			t.Errorf("%s: exit status %d, want 0 and the reason logged once: %s", by, status, p.Log)
		}
	}
}

// TestRepairVanishing verifies that, if a disk is removed while files on it are being moved, the part continues
// on other disks and keeps no state of the removed one.
func TestRepairVanishing(t *testing.T) {
	disk := scsiDisk(t)
	dir := mountDisk(t, "/dev/"+disk)
	number, err := cgroup.Disk(disk)
	if err != nil {
		t.Fatal(err)
	}
	lab.Node.Disks[disk], lab.DiskOf["gone"], lab.Volumes["gone"] = number, disk, dir
	t.Cleanup(func() { delete(lab.Node.Disks, disk); delete(lab.DiskOf, "gone"); delete(lab.Volumes, "gone") })
	lab.StartRepair(t)
	a, b := lab.NewWriter(t, "a"), lab.NewWriter(t, "b")
	a.Limit("gone", lab.MiB)
	// Small files: to move each takes many rounds over all of them.
	b.Does("sh", "-c", "cd "+dir+" && for i in $(seq 50); do head -c 4096 /dev/zero > f$i; done; sync -f .")
	lab.Within(t, lab.Deadline, "the filesystem of the disk is watched", func() error {
		for _, w := range lab.Report(t).Filesystems {
			if w.Mountpoint == dir {
				return nil
			}
		}
		return fmt.Errorf("the report does not list %s", dir)
	})
	end := a.Starts("sh", "-c", "cd "+dir+`
		while for i in $(seq 50); do dd if=/dev/zero of=f$i bs=4k count=1 conv=notrunc,fsync status=none 2>/dev/null || break 2; done; do :; done
		cd /; sleep 600`)
	reported(t, repair.StateRepairing)
	lab.WriteFile(t, "/sys/block/"+disk+"/device/delete", "1")
	end()
	lab.Eventually(t, "the filesystem of the removed disk can be unmounted", func() error { return lab.Runs("umount", dir) })
	lab.Eventually(t, "the report has nothing of the removed disk", func() error {
		if r := lab.Report(t); len(r.Filesystems) > 0 || len(r.Files) > 0 {
			return fmt.Errorf("the report has %+v", r)
		}
		return nil
	})
	reader, err := writeback.NewOwnerReader()
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	a.Remove()
	b.Remove()
	lab.Switches(t, reader, "ext4", lab.WaysToWrite[0].Command)
}

// TestRepairEnds verifies that the part leaves no BPF program in the kernel, and no report.
func TestRepairEnds(t *testing.T) {
	p := lab.StartRepair(t)
	a := lab.NewWriter(t, "a")
	a.Limit("ext4", 4*lab.MiB)
	lab.AwaitWatched(t, "ext4")
	p.Signal(t, syscall.SIGTERM)
	if status := p.Wait(t); status != 0 {
		t.Errorf("exit status %d after SIGTERM, want 0", status)
	}
	if r := lab.Report(t); r.Mode != "" {
		t.Errorf("the report is there: %+v", r)
	}
	if _, err := os.Stat("/run/nri-blkio/writeback.json"); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}
