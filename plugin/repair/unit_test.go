package repair

import (
	"os"
	"regexp"
	"strconv"
	"testing"
)

// TestTasksMax verifies that the unit of the writeback part allows the threads that hanging disks and processes
// can hold, and those of the Go runtime. Without a free thread the Go runtime ends the process.
func TestTasksMax(t *testing.T) {
	const unit, goRuntime = "../../deploy/systemd/nri-blkio-writeback.service", 64
	text, err := os.ReadFile(unit)
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`(?m)^TasksMax=(\d+)$`).FindSubmatch(text)
	if found == nil {
		t.Fatalf("%s has no TasksMax", unit)
	}
	if allowed, _ := strconv.Atoi(string(found[1])); allowed < maxPasses+maxAllReaders+goRuntime {
		t.Errorf("TasksMax is %d: %d passes and %d readers of mappings need a thread each, the Go runtime up to %d", allowed, maxPasses, maxAllReaders, goRuntime)
	}
}
