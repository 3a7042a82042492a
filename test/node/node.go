package node

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"
)

// BootTimeout bounds a boot up to a node on which containers can be run. An
// emulated node takes half a minute of two idle cores, and three minutes beside a
// build that keeps them busy.
const BootTimeout = 8 * time.Minute

// consoleLines is how much of the console an error carries.
const consoleLines = 100

// After these errors the caller tries again.
var (
	errPortTaken = errors.New("the port was taken")
	errNoTimer   = errors.New("the kernel hangs: QEMU has lost a timer of an emulated processor")
)

// lostTimer is the message that a kernel prints after 21 s without a timer. Of some hundred boots of emulated
// nodes, one ended so, soon after the start.
const lostTimer = "rcu_preempt kthread timer wakeup didn't happen"

// Node is a running node.
type Node struct {
	cfg    Config
	qemu   *qemu
	client *ssh.Client
	port   int
	dir    string // its disks, key and console
	remove func()
}

// Start boots a node, and builds the parts that the cache does not have. It returns when
// containerd runs and has its images. An error contains the last lines of the console. The
// node runs until [Node.Stop], or until this process ends.
func Start(ctx context.Context, cfg Config) (*Node, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	p, err := build(ctx, cfg)
	if err != nil {
		return nil, err
	}
	c, err := openCache(cfg)
	if err != nil {
		return nil, err
	}
	accel, err := c.accelerator(ctx, cfg, p)
	if err != nil {
		return nil, err
	}
	cfg.logf("booting: %s, %d MiB, %s", cfg, cfg.MemoryMiB, accel)
	start := time.Now()
	ctx, cancel := context.WithTimeoutCause(ctx, BootTimeout, fmt.Errorf("the node was not ready in %s", BootTimeout))
	defer cancel()
	for range 3 {
		var n *Node
		if n, err = c.boot(ctx, cfg, accel, p); err == nil {
			cfg.logf("ready after %s", time.Since(start).Round(100*time.Millisecond))
			return n, nil
		}
		if !errors.Is(err, errPortTaken) && !errors.Is(err, errNoTimer) {
			break
		}
		cfg.logf("booting again: %.80v", err)
	}
	return nil, fmt.Errorf("boot the node: %w", err)
}

// boot starts QEMU and waits for the node; on failure it leaves nothing behind.
func (c cache) boot(ctx context.Context, cfg Config, accel string, p parts) (*Node, error) {
	dir, remove, err := c.runDir()
	if err != nil {
		return nil, err
	}
	n := &Node{cfg: cfg, dir: dir, remove: remove}
	if err := n.start(ctx, accel, p); err != nil {
		err = n.withConsole(err)
		n.Stop()
		return nil, err
	}
	return n, nil
}

func (n *Node) start(ctx context.Context, accel string, p parts) error {
	if err := makeDisks(ctx, n.dir); err != nil {
		return err
	}
	key, err := newBootKey(filepath.Join(n.dir, "key"))
	if err != nil {
		return err
	}
	config, err := clientConfig(key, p.hostKey)
	if err != nil {
		return err
	}
	if n.port, err = freePort(); err != nil {
		return err
	}
	if n.qemu, err = startQEMU(n.dir, nodeArgs(n.cfg, accel, n.dir, key.authorized, p, n.port)); err != nil {
		return err
	}
	start := time.Now()
	if err := n.connect(ctx, config); err != nil {
		return err
	}
	n.cfg.logf("ssh after %s", time.Since(start).Round(100*time.Millisecond))
	return n.waitReady(ctx)
}

// connect dials until sshd answers.
func (n *Node) connect(ctx context.Context, config *ssh.ClientConfig) error {
	addr := fmt.Sprintf("127.0.0.1:%d", n.port)
	for {
		client, err := dial(ctx, addr, config)
		if err == nil {
			n.client = client
			return nil
		}
		select {
		case <-n.qemu.done:
			reason := n.qemu.exitReason()
			if strings.Contains(reason, "Could not set up host forwarding rule") {
				return errPortTaken
			}
			return errors.New(reason)
		case <-ctx.Done():
			return fmt.Errorf("%w (ssh: %w)", context.Cause(ctx), err)
		case <-time.After(250 * time.Millisecond):
			if strings.Contains(n.Console(consoleLines), lostTimer) {
				return errNoTimer
			}
		}
	}
}

// waitReady waits until systemd has started all there is to start.
func (n *Node) waitReady(ctx context.Context) error {
	var stdout, stderr strings.Builder
	code, err := n.Run(ctx, nil, &stdout, &stderr, "systemctl", "is-system-running", "--wait")
	if err != nil {
		return err
	}
	if code == 0 {
		return nil
	}
	failed, err := n.Output(ctx, "sh", "-c",
		"systemctl --failed --no-legend --plain; journalctl --no-pager -b -n 60 -p warning")
	if err != nil {
		return err
	}
	return fmt.Errorf("systemd is %s:\n%s", strings.TrimSpace(stdout.String()+stderr.String()), failed)
}

// SSH returns a command line that opens a shell in the running node.
func (n *Node) SSH() []string {
	return []string{
		"ssh", "-i", filepath.Join(n.dir, "key"), "-p", fmt.Sprint(n.port), "-o", "StrictHostKeyChecking=no",
		"-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR", "root@127.0.0.1",
	}
}

// Console returns the last lines of the console.
func (n *Node) Console(lines int) string { return n.qemu.consoleTail(lines) }

// Done returns a channel that is closed when the node has ended, by Stop or by itself.
func (n *Node) Done() <-chan struct{} { return n.qemu.done }

// Stop ends the node and removes its disks. It does not shut the guest down, since the
// disks are not used again.
func (n *Node) Stop() {
	if n.client != nil {
		_ = n.client.Close() // the other end goes with the next line
	}
	if n.qemu != nil {
		n.qemu.kill()
	}
	n.remove()
}

// lost adds how the node ended to an error of the connection, if it did end: QEMU
// is gone a moment after the connection.
func (n *Node) lost(err error) error {
	select {
	case <-n.qemu.done:
		return n.withConsole(fmt.Errorf("%w: %s", err, n.qemu.exitReason()))
	case <-time.After(2 * time.Second):
		return err
	}
}

func (n *Node) withConsole(err error) error {
	if n.qemu == nil {
		return err
	}
	return fmt.Errorf("%w\n--- the console's last %d lines ---\n%s", err, consoleLines, n.qemu.consoleTail(consoleLines))
}
