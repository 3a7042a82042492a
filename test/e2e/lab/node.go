package lab

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/nri-blkio/nri-blkio/test/attach"
	"github.com/nri-blkio/nri-blkio/test/e2e/cgroup"
	"github.com/nri-blkio/nri-blkio/test/e2e/cri"
	"github.com/nri-blkio/nri-blkio/test/payload"
)

// Node is the node that the tests run on. Main sets it once. Tests share it, because a node has one runtime
// and one set of disks.
var Node struct {
	Payload string // directory of the program under test
	Engine  string // "containerd-2", "containerd-1.7" or "crio-1.34"
	Runtime string // "runc" or "crun"
	Driver  string // "systemd" or "cgroupfs"
	CRI     *cri.Client
	Disks   map[string]string // kernel name -> device number
}

// Volumes has a directory on each of the node's filesystems, as for hostPath volumes. The names in test/node
// show the disk of each.
var Volumes = map[string]string{
	"ext4":  "/mnt/ext4/e2e",
	"part":  "/mnt/part/e2e",
	"xfs":   "/mnt/xfs/e2e",
	"btrfs": "/mnt/btrfs/e2e",
	"root":  "/var/lib/e2e",
	"tmpfs": "/run/e2e",
}

// RequestTimeout is the time after which the runtime gives up a request to a plugin. The nodes of test/node have more
// than the default 2 s: after a timeout the runtime closes the connection and starts containers without the plugin, and
// on an emulated node with a dozen pods starting, a process may not run at all for that long.
const RequestTimeout = "10s"

// Proof enables tests and measurements that take too long for each change.
var Proof = flag.Bool("proof", false, "measure longer")

// SoakPods and SoakSeed are the pods of TestSoak, which runs with -proof.
var (
	SoakPods = flag.Int("soak", 100, "run so many pods in the soak")
	SoakSeed = flag.Uint64("soak-seed", 0, "the `seed` of the soak's pods and disturbances; 0: a random one")
)

// ScenarioTime is how long TestScenarios measures each scenario.
var ScenarioTime = flag.Duration("scenario", 10*time.Second, "measure each scenario for so long")

const notOnNode = `these tests load and restart a whole node, so they run inside a disposable one:
nri_node.* is not on this kernel's command line. "make e2e" boots one and runs them there. With "make node" one stays up, and $E2E_NODE names its file`

// Main runs the tests of a folder of test/e2e, and then ends what they share. It returns the status to exit with.
func Main(m *testing.M, folder string, ends ...func() error) int {
	flag.Parse()
	code, err := run(m, folder, ends)
	if err != nil {
		fmt.Fprintf(os.Stderr, "e2e/%s: %v\n", folder, err)
		code = max(code, 1)
	}
	return code
}

func run(m *testing.M, folder string, ends []func() error) (int, error) {
	err := findNode()
	if file := os.Getenv(attach.Variable); err != nil && file != "" {
		return attach.Run(context.Background(), file, "../..", payload.Tests(folder), os.Args[1:])
	}
	if err != nil {
		return 1, err
	}
	// Some wait for a measurement while others load the node's two CPUs.
	if err := flag.Set("test.parallel", "6"); err != nil {
		return 1, err
	}
	if err := prepare(); err != nil {
		return 1, err
	}
	defer Node.CRI.Close()
	code := m.Run()
	for _, end := range ends {
		err = errors.Join(err, end())
	}
	return code, err
}

// findNode reads the parameters that the node was booted with.
func findNode() error {
	Node.Engine, Node.Runtime, Node.Driver = cri.Parameter("engine"), cri.Parameter("runtime"), cri.Parameter("driver")
	if Node.Engine == "" || Node.Runtime == "" || Node.Driver == "" {
		return errors.New(notOnNode)
	}
	return nil
}

func prepare() error {
	// The console has the stacks of hung tasks, which the kernel prints at level 6.
	if err := os.WriteFile("/proc/sys/kernel/printk", []byte("7"), 0); err != nil {
		return err
	}
	program, err := os.Executable()
	if err != nil {
		return err
	}
	Node.Payload = filepath.Dir(program)
	Node.Disks = make(map[string]string)
	for _, name := range []string{"vda", "vdb", "vdc", "vdd", "vde"} {
		if Node.Disks[name], err = cgroup.Disk(name); err != nil {
			return err
		}
	}
	for _, dir := range Volumes {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	if Node.CRI, err = cri.Dial(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	if err := Node.CRI.Ready(ctx); err != nil {
		return fmt.Errorf("the runtime does not answer: %w", err)
	}
	// A run that was interrupted leaves pods behind.
	if err := Node.CRI.RemovePods(ctx); err != nil {
		return err
	}
	return ImportImage(ctx, "iotool.tar")
}

// ImportImage gives the runtime an image of the payload.
func ImportImage(ctx context.Context, archive string) error {
	archive = filepath.Join(Node.Payload, archive)
	output, err := exec.CommandContext(ctx, "nri-node-images", archive).CombinedOutput()
	if err != nil {
		return fmt.Errorf("import %s: %w\n%s", archive, err, output)
	}
	return nil
}
