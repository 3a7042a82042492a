package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/procfs"
)

// accelerators are QEMU's arguments. With TCG these are the settings seen stable
// over an hour; a single thread is half as fast. TCG executes "rep movsb" byte by byte.
// Without the features that promise fast ones, the kernel copies and clears memory in
// words: a process starts in half the time, a file is read and written in a third.
var accelerators = map[string][]string{
	"kvm": {"-accel", "kvm", "-cpu", "host"},
	"tcg": {"-accel", "tcg,thread=multi", "-cpu", "max,-erms,-fsrm,-fzrm,-fsrs,-fsrc"},
}

// machine are the arguments that all boots share: no devices but those listed,
// and a guest that reboots (after a panic, for one) ends QEMU.
var machine = []string{
	"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
	"-machine", "q35,sata=off,smbus=off,i8042=off", "-smp", "2",
}

// qemu is a running QEMU process.
type qemu struct {
	cmd     *exec.Cmd
	done    chan struct{} // closed once the process is gone and err is set
	err     error
	console string // the file with the guest's console
	stderr  string // the file with QEMU's own complaints
}

// startQEMU starts QEMU with its files in dir. It dies with this process, however
// that ends.
func startQEMU(dir string, args []string) (*qemu, error) {
	q := &qemu{
		done:    make(chan struct{}),
		console: filepath.Join(dir, "console.log"),
		stderr:  filepath.Join(dir, "qemu.log"),
	}
	stderr, err := os.Create(q.stderr)
	if err != nil {
		return nil, err
	}
	defer stderr.Close()
	args = append([]string{"-serial", "file:" + q.console}, args...)
	q.cmd = exec.Command("qemu-system-x86_64", args...)
	q.cmd.Stdout, q.cmd.Stderr = stderr, stderr
	q.cmd.Env = append(os.Environ(), "TMPDIR="+dir) // where snapshot=on puts its file
	// A group of its own: the terminal's interrupt is for this process to act on.
	q.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	started := make(chan error)
	go func() {
		// Pdeathsig fires when the thread that forked ends, so it must not end.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := q.cmd.Start()
		started <- err
		if err == nil {
			q.err = q.cmd.Wait()
			close(q.done)
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start QEMU: %w", err)
	}
	return q, nil
}

// kill ends the process and waits until it is gone.
func (q *qemu) kill() {
	_ = q.cmd.Process.Kill() // an error means that it is gone
	<-q.done
}

// exitReason returns how the process ended, with its messages.
func (q *qemu) exitReason() string {
	reason := "QEMU ended"
	if q.err != nil {
		reason += ": " + q.err.Error()
	}
	if data, err := os.ReadFile(q.stderr); err == nil && len(data) > 0 {
		reason += ": " + lastLines(string(data), 10)
	}
	return reason
}

// consoleTail returns the end of the guest's console.
func (q *qemu) consoleTail(lines int) string {
	data, err := os.ReadFile(q.console)
	if err != nil {
		return err.Error()
	}
	return lastLines(strings.ReplaceAll(string(data), "\r", ""), lines)
}

// nodeArgs are QEMU's arguments for a node.
func nodeArgs(cfg Config, accel, dir, key string, p parts, port int) []string {
	args := append([]string{}, machine...)
	args = append(args, accelerators[accel]...)
	args = append(args,
		"-m", fmt.Sprint(cfg.MemoryMiB),
		"-kernel", p.vmlinuz, "-initrd", p.initrd, "-append", commandLine(cfg, key),
		"-device", "virtio-rng-pci",
		// restrict: the guest reaches nothing, so no test comes to depend on a network.
		"-netdev", fmt.Sprintf("user,id=net,restrict=on,hostfwd=tcp:127.0.0.1:%d-:22", port),
		"-device", "virtio-net-pci,netdev=net,romfile=",
	)
	args = append(args, diskArgs("vda", p.root, "snapshot=on")...)
	for _, d := range spareDisks {
		args = append(args, diskArgs(d.name, filepath.Join(dir, d.name), "cache=unsafe"+d.throttle)...)
	}
	return append(args, nvmeArgs(filepath.Join(dir, nvmeDisk))...)
}

// diskArgs leave the host's page cache on and flushes out: the disks die with the
// node, and what is measured is the guest's block layer.
func diskArgs(name, file, option string) []string {
	return []string{
		"-drive", fmt.Sprintf("if=none,id=%s,format=raw,file=%s,%s", name, strings.ReplaceAll(file, ",", ",,"), option),
		"-device", fmt.Sprintf("virtio-blk-pci,drive=%s,serial=nri-%s", name, name),
	}
}

// nvmeArgs is a disk behind two controllers of a subsystem.
func nvmeArgs(file string) []string {
	return []string{
		"-device", "nvme-subsys,id=nvmesys,nqn=nri-node",
		"-device", "nvme,id=path0,serial=nri-nvme,subsys=nvmesys",
		"-device", "nvme,id=path1,serial=nri-nvme,subsys=nvmesys",
		"-drive", "if=none,id=nvme,format=raw,cache=unsafe,file=" + strings.ReplaceAll(file, ",", ",,"),
		"-device", "nvme-ns,drive=nvme,nsid=1,shared=on,bus=path0",
	}
}

// commandLine is the kernel's: cgroup v2 only, a panic ends the machine, no
// security module (for BPF's, systemd attaches a program in 2 s of boot), and the
// parameters for nri-node-setup. Config.KernelArgs come last, because the kernel
// uses the last of several lsm=.
func commandLine(cfg Config, key string) string {
	return strings.Join([]string{
		"console=ttyS0", "loglevel=5", "panic=-1", "oops=panic", "net.ifnames=0", "mitigations=off",
		"cgroup_no_v1=all", "systemd.unified_cgroup_hierarchy=1", "systemd.show_status=auto",
		"lsm=capability", "random.trust_cpu=on", "tsc=reliable", "no_timer_check",
		"nri_node.engine=" + cfg.Engine, "nri_node.runtime=" + cfg.Runtime,
		"nri_node.driver=" + cfg.Driver, "nri_node.control_plane=" + cfg.ControlPlane, "nri_node.key=" + key,
		cfg.KernelArgs,
	}, " ")
}

// freePort returns a loopback port that was free a moment ago. If another program
// takes it first, QEMU ends at once, and the caller tries another port.
func freePort() (int, error) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// probeTimeout is the time in which a kernel has to reach its init: 4 s when emulated, less than 1 s
// with a KVM that works.
const probeTimeout = 15 * time.Second

const probeMarker = "nri-node-probe-ok"

// accelerator returns "kvm" where it has proved to boot, else "tcg". That
// /dev/kvm exists proves nothing: nested, it may hang a stock kernel. The result
// is kept until the host boots anew.
func (c cache) accelerator(ctx context.Context, cfg Config, p parts) (string, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("prove KVM: %w", err)
	}
	name := filepath.Join(c.dir, "kvm-"+strings.TrimSpace(string(boot)))
	if known, err := os.ReadFile(name); err == nil && accelerators[string(known)] != nil {
		return string(known), nil
	}
	accel := "kvm"
	if err := c.probeKVM(ctx, p); err != nil {
		if ctx.Err() != nil {
			return "", context.Cause(ctx)
		}
		cfg.logf("no KVM, emulating: %v", err)
		accel = "tcg"
	}
	old, _ := filepath.Glob(filepath.Join(c.dir, "kvm-*"))
	for _, f := range old {
		_ = os.Remove(f)
	}
	// Without the file the next boot proves it again: not worth failing for.
	_ = os.WriteFile(name, []byte(accel), 0o644)
	return accel, nil
}

// probeKVM boots the kernel with KVM up to the first line of its init.
func (c cache) probeKVM(ctx context.Context, p parts) error {
	f, err := os.OpenFile("/dev/kvm", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	f.Close()
	dir, remove, err := c.runDir()
	if err != nil {
		return err
	}
	defer remove()
	args := append(append([]string{}, machine...), accelerators["kvm"]...)
	args = append(args, "-m", "512", "-kernel", p.vmlinuz, "-initrd", p.initrd,
		"-append", "console=ttyS0 panic=-1 nri_node.probe")
	q, err := startQEMU(dir, args)
	if err != nil {
		return err
	}
	defer q.kill()
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	for {
		if strings.Contains(q.consoleTail(20), probeMarker) {
			return nil
		}
		select {
		case <-q.done:
			if strings.Contains(q.consoleTail(20), probeMarker) {
				return nil
			}
			return errors.New(q.exitReason())
		case <-ctx.Done():
			return fmt.Errorf("a kernel did not reach its init in %s", probeTimeout)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// CPUTime returns the processor time that QEMU has used for the node, in seconds.
func (n *Node) CPUTime() (float64, error) {
	p, err := procfs.NewProc(n.qemu.cmd.Process.Pid)
	if err != nil {
		return 0, err
	}
	stat, err := p.Stat()
	return stat.CPUTime(), err
}
