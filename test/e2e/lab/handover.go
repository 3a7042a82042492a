package lab

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
)

// What the program logs at the end of a container.
const (
	LogLifted = "Lifted limits of an ended container"
	LogLost   = "Cgroup removed before its limits were lifted"
)

// Pending returns the bytes that are dirty or under writeback on the node. The kernel's figures of one disk
// leave out the writes of all cgroups but the root.
func Pending() (int, error) {
	info, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, err
	}
	sum := 0
	for line := range strings.Lines(string(info)) {
		name, value, _ := strings.Cut(line, ":")
		if name != "Dirty" && name != "Writeback" {
			continue
		}
		var kib int
		if _, err := fmt.Sscan(value, &kib); err != nil {
			return 0, fmt.Errorf("%q: %w", line, err)
		}
		sum += kib << 10
	}
	return sum, nil
}

// AwaitOnDisk waits until at most 1 MiB is dirty or under writeback.
func AwaitOnDisk(t *testing.T) {
	t.Helper()
	Eventually(t, "the data is on the disk", func() error {
		left, err := Pending()
		if err == nil && left > MiB {
			err = fmt.Errorf("%d bytes are dirty or under writeback, want at most 1 MiB", left)
		}
		return err
	})
}

// HandedOver waits until the plugin has logged the end of a container, and reports whether its limits
// were lifted.
func (p *Instance) HandedOver(t *testing.T, container string) bool {
	t.Helper()
	var lifted bool
	Eventually(t, "the log has the end of container "+container, func() error {
		log := p.Log.String()
		lifted = strings.Contains(log, LogLifted)
		if !lifted && !strings.Contains(log, LogLost) {
			return errors.New("the log has neither lifted limits nor a removed cgroup")
		}
		return nil
	})
	p.Log.reset()
	return lifted
}
