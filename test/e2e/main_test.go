package e2e

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nri-blkio/nri-blkio/test/attach"
	"github.com/nri-blkio/nri-blkio/test/e2e/cgroup"
	"github.com/nri-blkio/nri-blkio/test/e2e/cri"
	"github.com/nri-blkio/nri-blkio/test/payload"
)

// node is the node that the tests run on. TestMain sets it once. Tests share it, because a node has one runtime
// and one set of disks.
var node struct {
	payload    string // directory of the program under test
	containerd string // "2" or "1.7"
	runtime    string // "runc" or "crun"
	driver     string // "systemd" or "cgroupfs"
	cri        *cri.Client
	disks      map[string]string // kernel name -> device number
}

// volumes has a directory on each of the node's filesystems, as for hostPath volumes. The names in test/node
// show the disk of each.
var volumes = map[string]string{
	"ext4":  "/mnt/ext4/e2e",
	"part":  "/mnt/part/e2e",
	"xfs":   "/mnt/xfs/e2e",
	"btrfs": "/mnt/btrfs/e2e",
	"root":  "/var/lib/e2e",
	"tmpfs": "/run/e2e",
}

// requestTimeout is the time after which the runtime gives up a request to a plugin.
const requestTimeout = "10s"

// proof enables tests and measurements that take too long for each change.
var proof = flag.Bool("proof", false, "measure longer")

// soakPods is how many pods TestSoak runs, with -proof.
var (
	soakPods = flag.Int("soak", 100, "run so many pods in the soak")
	soakSeed = flag.Uint64("soak-seed", 0, "the `seed` of the soak's pods and disturbances; 0: a random one")
)

var scenarioTime = flag.Duration("scenario", 10*time.Second, "measure each scenario for so long")

const notOnNode = `these tests load and restart a whole node, so they run inside a disposable one:
nri_node.* is not on this kernel's command line. "make e2e" boots one and runs them there. With "make node" one stays up, and $E2E_NODE names its file`

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == churnCommand {
		if err := churn(os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	flag.Parse()
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		code = max(code, 1)
	}
	os.Exit(code)
}

func run(m *testing.M) (int, error) {
	err := findNode()
	if file := os.Getenv(attach.Variable); err != nil && file != "" {
		return attach.Run(context.Background(), file, payload.Program{Name: "e2e.test", Package: "./e2e", Test: true, Helm: true}, os.Args[1:])
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
	defer node.cri.Close()
	return m.Run(), nil
}

// findNode reads the parameters that the node was booted with.
func findNode() error {
	cmdline, err := os.ReadFile("/proc/cmdline")
	if err != nil {
		return err
	}
	for word := range strings.FieldsSeq(string(cmdline)) {
		name, value, _ := strings.Cut(word, "=")
		switch name {
		case "nri_node.containerd":
			node.containerd = value
		case "nri_node.runtime":
			node.runtime = value
		case "nri_node.driver":
			node.driver = value
		}
	}
	if node.containerd == "" || node.runtime == "" || node.driver == "" {
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
	node.payload = filepath.Dir(program)
	node.disks = make(map[string]string)
	for _, name := range []string{"vda", "vdb", "vdc", "vdd", "vde"} {
		if node.disks[name], err = cgroup.Disk(name); err != nil {
			return err
		}
	}
	for _, dir := range volumes {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	if node.cri, err = cri.Dial(node.driver); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	if err := node.cri.Ready(ctx); err != nil {
		return fmt.Errorf("the runtime does not answer: %w", err)
	}
	if err := giveTime(ctx); err != nil {
		return err
	}
	// A run that was interrupted leaves pods behind.
	if err := node.cri.RemovePods(ctx); err != nil {
		return err
	}
	return importImage(ctx, "iotool.tar")
}

func importImage(ctx context.Context, archive string) error {
	archive = filepath.Join(node.payload, archive)
	output, err := exec.CommandContext(ctx, "ctr", "-n", "k8s.io", "images", "import", "--local", archive).CombinedOutput()
	if err != nil {
		return fmt.Errorf("import %s: %w\n%s", archive, err, output)
	}
	return nil
}

// giveTime raises the timeouts of the runtime for plugins from the default 2 s. After a timeout it closes the
// connection and starts containers without the plugin. On an emulated node with a dozen pods starting, a
// process may not run at all for that long.
func giveTime(ctx context.Context) error {
	const file, mark, timeouts = "/etc/containerd/config.toml", "\n  disable = false\n",
		"  plugin_request_timeout = \"" + requestTimeout + "\"\n  plugin_registration_timeout = \"20s\"\n"
	config, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	text := string(config)
	if strings.Contains(text, timeouts) {
		return nil
	}
	if strings.Count(text, mark) != 1 {
		return fmt.Errorf("%s: want one line %q, of the NRI section", file, mark)
	}
	if err := os.WriteFile(file, []byte(strings.Replace(text, mark, mark+timeouts, 1)), 0o644); err != nil {
		return err
	}
	if out, err := exec.CommandContext(ctx, "systemctl", "restart", "containerd").CombinedOutput(); err != nil {
		return fmt.Errorf("restart containerd: %w: %s", err, out)
	}
	return node.cri.Ready(ctx)
}
