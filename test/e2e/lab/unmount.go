package lab

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// unmountDeadline is more than 64 MiB take at 1 MiB/s: what a container has left is written at
// its limit if no plugin lifts that.
const unmountDeadline = 3 * time.Minute

// unmounts unmounts a directory at the end of a test. A sync of the plugin, which has just
// ended, may still be under way. Where it stays busy the error names the processes that use it.
func unmounts(t *testing.T, dir string) {
	t.Helper()
	Within(t, unmountDeadline, "it can be unmounted", func() error {
		if err := Runs("umount", dir); err != nil {
			return fmt.Errorf("%w; in use by %s", err, usersOf(dir))
		}
		return nil
	})
}

// usersOf lists the processes that have a file, or their directory, below dir, and the mounts
// below it.
func usersOf(dir string) string {
	var out []string
	links, _ := filepath.Glob("/proc/[0-9]*/fd/*") // a process that has ended has none
	for _, name := range []string{"cwd", "root", "exe"} {
		more, _ := filepath.Glob("/proc/[0-9]*/" + name)
		links = append(links, more...)
	}
	for _, link := range links {
		target, err := os.Readlink(link)
		if err != nil || target != dir && !strings.HasPrefix(target, dir+"/") {
			continue
		}
		process := filepath.Join("/proc", strings.Split(link, "/")[2])
		command, _ := os.ReadFile(process + "/cmdline")
		stack, _ := os.ReadFile(process + "/stack")
		out = append(out, fmt.Sprintf("%s -> %s: %q, in the kernel %q", link, target, command, stack))
	}
	mounts, _ := os.ReadFile("/proc/self/mountinfo")
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, " "+dir) {
			out = append(out, strings.TrimSpace(line))
		}
	}
	return strings.Join(out, "\n")
}
