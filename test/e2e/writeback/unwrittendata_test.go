package writeback

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/nri-blkio/nri-blkio/test/e2e/lab"
)

// dead is a row of status about a container that has ended with unwritten data.
type dead struct {
	Namespace, Pod, Container, Disk, DrainsAt, Since string
	Left                                             int64
}

// deadOf returns the row of a pod.
func deadOf(t *testing.T, pod lab.PodOf) []dead {
	t.Helper()
	out, err := lab.Command(t, "status", "-o", "json", "--pod", "default/"+pod.Name)
	if err != nil {
		t.Fatal(err)
	}
	var answer struct{ Dead []dead }
	if err := json.Unmarshal([]byte(out), &answer); err != nil {
		t.Fatalf("%v in %q", err, out)
	}
	return answer.Dead
}

// TestDead verifies that status lists the unwritten data of an ended container whose limit cannot be lifted any
// more, with its pod, until the data is on the disk.
func TestDead(t *testing.T) {
	lab.StartPlugin(t, "--policy", lab.PolicyFile(t, "writeback: {handOver: false}\n"))
	pod := lab.RunPod(t, "pod", lab.Annotations{lab.Limits + "container.web": "/data wbps=512Ki"})
	pod.MustRun(lab.Sleeper("free")) // so that the pod as a whole has no limit
	writeAndEnd(t, pod, "web", "4Mi")
	lab.Eventually(t, "status lists the unwritten data", func() error {
		rows := deadOf(t, pod)
		if len(rows) != 1 {
			return fmt.Errorf("status lists %d ended containers, want 1: %+v", len(rows), rows)
		}
		got := rows[0]
		t.Logf("%+v", got)
		if got.Left < lab.MiB || got.Left > 6*lab.MiB {
			return fmt.Errorf("%d bytes are unwritten, want 1 to 6 MiB", got.Left)
		}
		got.Left, got.Since = 0, ""
		want := dead{Namespace: "default", Pod: pod.Name, Container: "web", Disk: "vdb", DrainsAt: "wbps=512Ki"}
		if got != want {
			return fmt.Errorf("got %+v, want %+v", got, want)
		}
		return nil
	})

	// Without this sync the kernel would begin half a minute later. The sync takes as long as at the limit.
	sync := exec.CommandContext(t.Context(), filepath.Join(lab.Node.Payload, "nri-blkio"), "sync", lab.Volumes["ext4"])
	if err := sync.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sync.Wait() }() // killed or done: status decides the result
	lab.Within(t, 2*time.Minute, "status lists no unwritten data", func() error {
		rows := deadOf(t, pod)
		if len(rows) == 0 {
			return nil
		}
		return fmt.Errorf("status lists %+v", rows)
	})
}
