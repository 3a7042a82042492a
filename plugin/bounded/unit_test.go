package bounded

import (
	"os"
	"regexp"
	"strconv"
	"testing"
)

// TestTasksMax verifies that the unit of the limits part allows the threads that hanging calls can hold: those
// of events, of the reconciler, and of weights. The Go runtime needs further threads, and each sync of a
// filesystem a process.
func TestTasksMax(t *testing.T) {
	const unit, others = "../../deploy/systemd/nri-blkio.service", 256
	text, err := os.ReadFile(unit)
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`(?m)^TasksMax=(\d+)$`).FindSubmatch(text)
	if found == nil {
		t.Fatalf("%s has no TasksMax", unit)
	}
	if allowed, _ := strconv.Atoi(string(found[1])); allowed < 3*Max+others {
		t.Errorf("TasksMax is %d: %d calls need a thread each", allowed, 3*Max)
	}
}
