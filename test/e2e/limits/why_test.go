package limits

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/nri-blkio/nri-blkio/test/e2e/cri"
	"github.com/nri-blkio/nri-blkio/test/e2e/lab"
	"github.com/nri-blkio/nri-blkio/test/e2e/noise"
)

// answerOf is what `why -o json` says.
type answerOf struct {
	Cause, Text string
	Causes      []namedCause
	Unknown     []string
}

type namedCause struct {
	Cause, Disk, Text string
	Part              float64
	Who               *struct {
		Pod, Container, Cgroup string
		Ended                  bool
	}
	Limit *struct {
		Key, Value, From string
		Used             float64
	}
	Beside []struct{ Pod, Cgroup string }
}

func whyOf(t *testing.T, duration string, args ...string) answerOf {
	t.Helper()
	out, err := lab.Command(t, append([]string{"why", "--for", duration, "-o", "json"}, args...)...)
	if err != nil {
		t.Fatal(err)
	}
	var answer answerOf
	if err := json.Unmarshal([]byte(out), &answer); err != nil {
		t.Fatalf("%v in %q", err, out)
	}
	t.Logf("%s", answer.Text)
	isKnown(t, answer.Unknown)
	return answer
}

// isKnown verifies that no cause is unknown.
func isKnown(t *testing.T, unknown []string) {
	t.Helper()
	for _, u := range unknown {
		if !strings.HasPrefix(u, "completions: ") { // Linux 6.1 has no io_cqring_wait that programs can be attached to
			t.Errorf("unknown: %s", u)
		}
	}
}

// TestWhy asks why of pods whose cause is known. A limit is never blamed where none is.
func TestWhy(t *testing.T) {
	lab.StartPlugin(t)
	own := lab.RunPod(t, "own", lab.Annotations{lab.Limits + "container.a": "/data wbps=1Mi"})
	own.MustRun(lab.Working(t, "a", "write", "--direct", "--seconds", "900"))
	total := lab.RunPod(t, "total", lab.Annotations{lab.Limits + "pod-total": "/data wbps=1Mi"})
	total.MustRun(lab.Working(t, "b", "write", "--direct", "--seconds", "900"))
	free := lab.RunPod(t, "free", nil)
	lab.Know(t, "vdi") // does 1,500 operations a second
	dir := t.TempDir()
	lab.Administer(t, "mount", "/dev/vdi", dir)
	t.Cleanup(func() { lab.Administer(t, "umount", dir) })
	free.MustRun(cri.ContainerConfig{
		Name: "c", Args: []string{"write", "--direct", "--block", "4Ki", "--seconds", "900", "--path", "/slow/file"},
		Mounts: []cri.Mount{{Path: "/slow", Host: dir}},
	})
	idle := lab.RunPod(t, "idle", nil)
	idle.MustRun(lab.Sleeper("c"))
	for _, tt := range []struct {
		name   string
		args   []string
		causes []string // one of them is the first
		from   string
	}{
		{"own limit", []string{"default/" + own.Name, "a"}, []string{"own-limit"}, "limits/container.a #1"},
		{"own limit of the pod's container", []string{own.Name}, []string{"own-limit"}, "limits/container.a #1"},
		{"limit of the pod", []string{total.Name, "b"}, []string{"pod-limit"}, "limits/pod-total #1"},
		{"the disk", []string{free.Name, "c"}, []string{"busy-disk"}, ""},
		{"nothing", []string{idle.Name}, []string{"nothing-of-disk"}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := whyOf(t, "5s", tt.args...)
			if !slices.Contains(tt.causes, got.Cause) {
				t.Errorf("the cause is %q, want %q: %+v", got.Cause, tt.causes, got.Causes)
			}
			if len(got.Causes) > 0 && tt.from != "" {
				if c := got.Causes[0]; c.Limit == nil || c.Limit.From != tt.from || c.Limit.Value != "1Mi" || c.Disk != "vdb" || c.Part < 0.6 {
					t.Errorf("the first cause is %+v with %+v, want 1Mi from %s on vdb", c, c.Limit, tt.from)
				}
			}
		})
	}
	t.Run("top", func(t *testing.T) { checkTop(t, own.Name) })
	if _, err := lab.Command(t, "why", "no-such-pod"); err == nil {
		t.Error("a pod that is not there has an answer")
	}
}

// TestWhyPredecessor asks why of a container that waits for data of an ended one, whose limit could not be lifted any more. Both write
// to the same file. The kernel may hold all of the data as one bio, so the wait begins after the programs are attached.
//
//e2e:proof
func TestWhyPredecessor(t *testing.T) {
	lab.StartPlugin(t, "--policy", lab.PolicyFile(t, "writeback: {handOver: false}\n"))
	pod := lab.RunPod(t, "pod", lab.Annotations{lab.Limits + "container.before": "/data wbps=512Ki"})
	after := pod.MustRun(lab.Sleeper("after")) // without a limit, so the pod as a whole has none
	pod.MustRun(lab.Working(t, "before", "write", "--size", "4Mi"))
	file := lab.File(t, "ext4", "before")
	lab.Eventually(t, "the owner of the file has ended", func() error {
		if o := lab.OwnerOf(t, file); o.State != "ended" || o.Container != "before" {
			return fmt.Errorf("the owner is %+v", o)
		}
		return nil
	})
	writer := exec.CommandContext(t.Context(), "sh", "-c", `sleep 5; exec dd status=none if=/dev/zero of="$0" bs=4k count=1 conv=notrunc,fsync`, file)
	if err := noise.StartIn(after.Cgroup, writer); err != nil {
		t.Fatal(err)
	}
	got := whyOf(t, "20s", pod.Name, "after")
	if err := writer.Wait(); err != nil {
		t.Error(err)
	}
	if len(got.Causes) == 0 {
		t.Fatal("it waits for nothing")
	}
	c := got.Causes[0]
	if got.Cause != "predecessor" || c.Disk != "vdb" || c.Part < 0.6 || c.Who == nil || c.Who.Pod != pod.Name || c.Who.Container != "before" || !c.Who.Ended {
		t.Errorf("the cause is %q: %+v of %+v, want data of container before on vdb", got.Cause, c, c.Who)
	}
}

// topRow is a row of what `top -o json` says.
type topRow struct {
	Pod, Container, Disk string
	WriteBytes           float64
	Held, Others         *float64
	Limit                *struct{ Key, Value string }
}

// checkTop verifies what top shows of a pod whose container "a" writes to vdb as fast as its limit of 1 MiB/s lets it: most of the time its
// limit holds it, few of its threads wait for others, and it is never above the limit. A busy node holds the writer as well, so a measurement
// below that is repeated. Of a program that counts no waits, or those of another cgroup, each one is.
func checkTop(t *testing.T, pod string) {
	lab.Eventually(t, "top shows that the limit holds the writer", func() error {
		r := topOf(t, pod)
		t.Logf("wrote %.0f bytes/s, held %.3f of the time, %.3f threads wait for others", r.WriteBytes, *r.Held, *r.Others)
		if r.WriteBytes > 1.1*lab.MiB || r.Limit.Value != "1Mi" {
			t.Fatalf("got %+v with %+v", r, r.Limit)
		}
		if *r.Held < 0.6 || *r.Others > 0.3 || r.WriteBytes < 0.6*lab.MiB {
			return fmt.Errorf("held %.3f of the time, %.3f threads wait for others, %.0f bytes/s", *r.Held, *r.Others, r.WriteBytes)
		}
		return nil
	})
}

// topOf returns the row of container "a" of a pod on vdb.
func topOf(t *testing.T, pod string) topRow {
	t.Helper()
	out, err := lab.Command(t, "top", "-d", "10s", "-n", "default", "--problems", "-o", "json")
	if err != nil {
		t.Fatal(err)
	}
	var top struct {
		Rows    []topRow
		Unknown []string
	}
	if err := json.Unmarshal([]byte(out), &top); err != nil {
		t.Fatalf("%v in %q", err, out)
	}
	isKnown(t, slices.DeleteFunc(top.Unknown, func(u string) bool { return strings.Contains(u, "commits of btrfs") })) // of other tests' pods
	i := slices.IndexFunc(top.Rows, func(r topRow) bool { return r.Pod == pod && r.Container == "a" && r.Disk == "vdb" })
	if i < 0 {
		t.Fatalf("no row of container a of %s on vdb in %s", pod, out)
	}
	if r := top.Rows[i]; r.Held == nil || r.Others == nil || r.Limit == nil {
		t.Fatalf("unknown values in %s", out)
	}
	return top.Rows[i]
}
