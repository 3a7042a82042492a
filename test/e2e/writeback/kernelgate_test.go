package writeback

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nri-blkio/nri-blkio/plugin/repair"
	"github.com/nri-blkio/nri-blkio/test/e2e/lab"
)

// affectedBuild is in /proc/version of the one test kernel with CVE-2026-64378.
const affectedBuild = " Debian 6.1.176-"

// The log lines of the program's two parts on a kernel with the bug.
const (
	logGated      = "Files are not moved to their writers on this kernel"
	logUnreleased = "Files of ended containers keep their owner until the kernel releases them"
)

// TestKernelGate verifies that, by default, files are moved to their writers only on a kernel with the
// corrections. On another kernel, the log and status name the bug, the release with its correction, and the
// override. With the override files are moved there as well.
func TestKernelGate(t *testing.T) {
	version, err := os.ReadFile("/proc/version")
	if err != nil {
		t.Fatal(err)
	}
	affected := strings.Contains(string(version), affectedBuild)
	t.Logf("affected: %v: %s", affected, version)
	p := lab.StartPlugin(t, "--log-level", "debug")
	for _, line := range []string{logGated, logUnreleased} {
		if n := p.Count(line); n > 1 || (n == 1) != affected {
			t.Errorf("the log has %d times %q, want it once on an affected kernel (this one: %t) and never on another", n, line, affected)
		}
	}
	a, b := lab.NewWriter(t, "a"), lab.NewWriter(t, "b")
	a.Limit("xfs", 4*lab.MiB)
	file := contest(t, "xfs", a, b)
	if affected {
		staysGated(t, file, a, b)
		p.Kill(t)
		p = lab.StartPlugin(t, "--log-level", "debug", "--policy", lab.PolicyFile(t, "writeback: {repair: true}\n"))
		if n := p.Count(logGated) + p.Count(logUnreleased); n > 0 {
			t.Errorf("with the override the log has %d times that repair is off, want 0", n)
		}
	}
	lab.Eventually(t, "the file belongs to its writer", func() error {
		if o := lab.OwnerOf(t, file); o.CgroupID != a.ID {
			return fmt.Errorf("the owner is %+v, want cgroup %d", o, a.ID)
		}
		return nil
	})
	if r := lab.Report(t); r.Mode != repair.ModeRepair || r.Reason != "" {
		t.Errorf("the report has mode %s with the reason %q, want mode %s without one", r.Mode, r.Reason, repair.ModeRepair)
	}
}

// staysGated checks what a gated program reports of a file that a writes to and b owns.
func staysGated(t *testing.T, file string, a, b lab.Writer) {
	t.Helper()
	f := reported(t, repair.StateWaiting)
	if f.Owner.CgroupID != b.ID || f.Writers[0].CgroupID != a.ID {
		t.Errorf("the report has the file as %+v, want owner %d and writer %d", f, b.ID, a.ID)
	}
	// As long as a move takes otherwise, and more.
	for end := time.Now().Add(3 * time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if o := lab.OwnerOf(t, file); o.CgroupID != b.ID {
			t.Fatalf("on an affected kernel the file moved to %+v, want owner %d", o, b.ID)
		}
	}
	text, err := lab.Command(t, "status")
	for _, part := range []string{"CVE-2026-64378", "fixed in 6.1.178", "writeback.repair: true"} {
		if err != nil || !strings.Contains(text, part) {
			t.Errorf("status lacks %q: %v: %s", part, err, text)
		}
	}
	if r := lab.Report(t); r.Mode != repair.ModeGated {
		t.Errorf("the report has mode %s, want %s", r.Mode, repair.ModeGated)
	}
}
