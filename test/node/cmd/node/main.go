// Command node builds and boots the disposable node that tests run on.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/nri-blkio/nri-blkio/test/node"
)

const usage = `Boot a disposable Kubernetes node in QEMU.

Usage:
  node prepare [flags]                          build all that nodes need, into the cache
  node run [flags] [--payload DIR] -- CMD...    boot, run CMD in the node, stop; exits with CMD's status
  node up [flags] [--payload DIR] [--env FILE]  boot, and stay until interrupted

Examples:
  node prepare
  node run -- uname -r
  node run --kernel 6.1 --engine containerd-1.7 -- ctr version
  node up --kernel-args "lsm=capability,lockdown lockdown=confidentiality"
  node run --payload ./bin -- /payload/limits.test -test.v
  node up --env /tmp/node.env & . /tmp/node.env; $NODE_SSH journalctl -u containerd
  node up --control-plane on --env /tmp/node.env & . /tmp/node.env; $NODE_SSH kubectl get nodes

The flags' defaults come from NODE_KERNEL, NODE_ENGINE, NODE_RUNTIME,
NODE_DRIVER, NODE_CONTROL_PLANE, NODE_MEMORY and NODE_KERNEL_ARGS. The cache is
$NRI_BLKIO_CACHE, else nri-blkio in the user's cache directory.

Flags:
`

// exitStatus is the status of the command that ran in the node.
type exitStatus int

func (e exitStatus) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	var status exitStatus
	switch {
	case errors.As(err, &status):
		os.Exit(int(status))
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "node:", err)
		os.Exit(1)
	}
}

// options are the command line's.
type options struct {
	cfg     node.Config
	payload string
	env     string
	timeout time.Duration
	command []string
}

func parse(args []string, stderr io.Writer) (options, error) {
	cfg, err := node.ConfigFromEnv()
	if err != nil {
		return options{}, err
	}
	o := options{cfg: cfg}
	flags := flag.NewFlagSet("node", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() {
		fmt.Fprint(stderr, usage)
		flags.PrintDefaults()
	}
	for _, p := range []struct {
		name  string
		value *string
	}{
		{"kernel", &o.cfg.Kernel},
		{"engine", &o.cfg.Engine},
		{"runtime", &o.cfg.Runtime},
		{"driver", &o.cfg.Driver},
		{"control-plane", &o.cfg.ControlPlane},
	} {
		choices := node.Choices(p.name)
		flags.StringVar(p.value, p.name, *p.value,
			fmt.Sprintf("%s (default %s)", strings.Join(choices, " or "), choices[0]))
	}
	flags.BoolVar(&o.cfg.Small, "small", false, "the node of make demo: Debian's containerd, without Kubernetes")
	flags.IntVar(&o.cfg.MemoryMiB, "memory", o.cfg.MemoryMiB, "the node's memory in `MiB` (default 3072)")
	flags.StringVar(&o.cfg.KernelArgs, "kernel-args", o.cfg.KernelArgs,
		"`ARGS` for the end of the kernel's command line; of two lsm= the last one counts")
	flags.StringVar(&o.payload, "payload", "", "copy the contents of `DIR` to /payload first")
	flags.StringVar(&o.env, "env", "", "write NODE_SSH='ssh ...' to `FILE` once the node is up")
	flags.DurationVar(&o.timeout, "timeout", 0, "end CMD after this time (default: none)")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	o.command = flags.Args()
	o.cfg.Log = stderr
	return o, o.cfg.Validate()
}

func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) error {
	verb := ""
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		verb, args = args[0], args[1:]
	}
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	switch {
	case verb != "run" && len(o.command) > 0:
		return fmt.Errorf("unexpected argument %q", o.command[0])
	case verb == "prepare":
		return node.Build(ctx, o.cfg)
	case verb == "run" && len(o.command) == 0:
		return errors.New("run: which command? (node run -- CMD ARGS...)")
	case verb == "run":
		return runCommand(ctx, o, stdin, stdout, stderr)
	case verb == "up":
		return up(ctx, o, stdout)
	}
	return fmt.Errorf("want prepare, run or up, got %q (node -h shows how)", verb)
}

// boot starts the node with its payload.
func boot(ctx context.Context, o options) (*node.Node, error) {
	n, err := node.Start(ctx, o.cfg)
	if err != nil || o.payload == "" {
		return n, err
	}
	if err := n.Copy(ctx, o.payload, "/payload"); err != nil {
		n.Stop()
		return nil, err
	}
	return n, nil
}

func runCommand(ctx context.Context, o options, stdin io.Reader, stdout, stderr io.Writer) error {
	n, err := boot(ctx, o)
	if err != nil {
		return err
	}
	defer n.Stop()
	if o.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, o.timeout, fmt.Errorf("not done in %s", o.timeout))
		defer cancel()
	}
	code, err := n.Run(ctx, stdin, stdout, stderr, o.command...)
	if err != nil {
		return err
	}
	if code != 0 {
		return exitStatus(code)
	}
	return nil
}

func up(ctx context.Context, o options, stdout io.Writer) error {
	n, err := boot(ctx, o)
	if err != nil {
		return err
	}
	defer n.Stop()
	command := strings.Join(n.SSH(), " ")
	fmt.Fprintln(stdout, command)
	if o.env != "" {
		if err := os.WriteFile(o.env, fmt.Appendf(nil, "NODE_SSH='%s'\n", command), 0o644); err != nil {
			return err
		}
		defer os.Remove(o.env)
	}
	select {
	case <-ctx.Done():
		return nil
	case <-n.Done():
		return fmt.Errorf("the node ended:\n%s", n.Console(100))
	}
}
