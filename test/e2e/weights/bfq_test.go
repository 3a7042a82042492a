package weights

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nri-blkio/nri-blkio/test/e2e/cgroup"
	"github.com/nri-blkio/nri-blkio/test/e2e/lab"
)

// bfqPolicy gives the shared disk to bfq.
const bfqPolicy = `bounds: {weight: {max: 10000}}
disks:
- {match: {names: [` + sharedDisk + `]}, weights: bfq}
`

// bfqRounds is how often TestBFQ measures.
const bfqRounds = 3

// TestBFQ verifies that bfq divides a disk by weights 200 and 300 where the policy has weights: bfq, beside an idle pod, and that the disk
// gets its former scheduler back when the policy changes, and by clear. Other disks keep theirs.
//
//e2e:proof
func TestBFQ(t *testing.T) {
	b := mountSlow(t, sharedDisk)
	b.keepsQueue(t)
	lab.WriteFile(t, queueFile("scheduler"), "mq-deadline")
	others := b.otherSchedulers()
	t.Cleanup(func() { b.clearAll() }) // after the plugin
	policy := lab.PolicyFile(t, bfqPolicy)
	p := lab.StartPlugin(t, "--policy", policy)
	b.holder("bfq-idle", lab.Annotations{lab.Weight + "containers": "1000"})
	pair := []held{
		b.holder("bfq-light", lab.Annotations{lab.Weight + "containers": "200"}),
		b.holder("bfq-heavy", lab.Annotations{lab.Weight + "containers": "300"}),
	}
	b.awaitScheduler("bfq")
	lab.Eventually(t, "the weights are written", func() error {
		text, err := os.ReadFile(cgroup.Root + "/" + pair[1].Cgroup + "/io.bfq.weight")
		if want := b.number + " 300\n"; err == nil && !strings.Contains(string(text), want) {
			err = fmt.Errorf("io.bfq.weight is %q, want %q", text, want)
		}
		return err
	})
	for i, k := range pair { // the files are there before anything is measured
		b.own(t, k, b.shareFile(i))
	}
	for _, c := range []shareCase{
		{"direct reads", []string{"--rw=randread", "--direct=1", "--ioengine=libaio", "--iodepth=16"}, nil, shareSeconds / 2},
		{"direct writes", []string{"--rw=randwrite", "--direct=1", "--ioengine=libaio", "--iodepth=16"}, nil, shareSeconds / 2},
	} {
		b.shares(t, pair, c, bfqRounds, 6) // in single runs bfq takes one container for the waker of the other
	}
	if got := b.otherSchedulers(); got != others {
		t.Errorf("other disks have the schedulers\n%s\nwant\n%s", got, others)
	}
	lab.WritePolicy(t, policy, "")
	b.awaitScheduler("mq-deadline")
	lab.WritePolicy(t, policy, bfqPolicy)
	b.awaitScheduler("bfq")
	p.Signal(t, unix.SIGTERM)
	p.Wait(t)
	b.awaitScheduler("bfq") // as limits, it stays while the plugin is down
	b.clearAll()
	b.awaitScheduler("mq-deadline")
}

// clearAll removes the plugin's settings.
func (b *slowBench) clearAll() {
	b.Helper()
	lab.Administer(b.T, filepath.Join(lab.Node.Payload, "nri-blkio"), "clear", "--all", "--yes")
}

// otherSchedulers returns those of all other disks.
func (b *slowBench) otherSchedulers() string {
	b.Helper()
	names, err := filepath.Glob("/sys/block/*/queue/scheduler")
	if err != nil {
		b.Fatal(err)
	}
	var out strings.Builder
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			b.Fatal(err)
		}
		_, active, _ := strings.Cut(string(text), "[")
		active, _, _ = strings.Cut(active, "]")
		if name != queueFile("scheduler") {
			fmt.Fprintln(&out, name, active)
		}
	}
	return out.String()
}

// awaitScheduler waits for the scheduler of the shared disk.
func (b *slowBench) awaitScheduler(want string) {
	b.Helper()
	lab.Eventually(b.T, "the scheduler is "+want, func() error {
		text, err := os.ReadFile(queueFile("scheduler"))
		if err == nil && !strings.Contains(string(text), "["+want+"]") {
			err = fmt.Errorf("queue/scheduler is %q", text)
		}
		return err
	})
}
