// Demo boots a node, lets the kubelet run three annotated pods there, and prints
// the requested limit of each, the limit in force, and the measured rate. Then it runs a
// victim beside a noisy neighbour with no settings, with a limit, and with weights,
// and prints a table and a plot. It exits with 1 if a rate is more than a tenth
// above its limit, if nothing was written, or if weights do not help the victim. It
// says so if other programs used the machine's processors meanwhile.
//
//	go run ./demo
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/nri-blkio/nri-blkio/test/node"
	"github.com/nri-blkio/nri-blkio/test/payload"
)

// limit is the time for the whole demo without building, under emulation.
const limit = 20 * time.Minute

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	switch {
	case slices.Equal(args, []string{"-in-node"}): // how the first form calls itself
		return inNode(ctx, stdout)
	case len(args) > 0:
		return errors.New("usage: demo")
	}
	module, err := moduleDir()
	if err != nil {
		return err
	}
	cfg, err := node.ConfigFromEnv()
	if err != nil {
		return err
	}
	cfg.Log = stderr
	dir, err := os.MkdirTemp("", "demo")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := payload.Build(ctx, module, dir, payload.Program{Name: "demo", Package: "./demo"}); err != nil {
		return err
	}
	if err := node.Build(ctx, cfg); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not done within %v", limit))
	defer cancel()
	n, err := node.Start(ctx, cfg)
	if err != nil {
		return err
	}
	defer n.Stop()
	if err := n.Copy(ctx, dir, payload.Guest); err != nil {
		return err
	}
	before, err := usageOf(n.CPUTime)
	if err != nil {
		return err
	}
	code, err := n.Run(ctx, nil, stdout, stderr, payload.Guest+"/demo", "-in-node")
	if err != nil {
		return fmt.Errorf("%w\nthe node's console:\n%s", err, n.Console(60))
	}
	after, err := usageOf(n.CPUTime)
	if err != nil {
		return err
	}
	return verdict(code, busyText(after.byOthers(before)), stderr)
}

// verdict returns an error if the demo failed in the node. busy is the text of busyText.
func verdict(code int, busy string, stderr io.Writer) error {
	switch {
	case code == 0 && busy == "":
		return nil
	case code == 0:
		fmt.Fprintln(stderr, "demo:", busy)
		return nil
	case busy == "":
		return errors.New("the demo failed in the node: a limit was exceeded or not in force, or weights did not help")
	}
	return fmt.Errorf("the demo failed in the node, and that may not be the fault of limits or weights: %s", busy)
}

// moduleDir is the working directory, which has to be the test module's.
func moduleDir() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(filepath.Join(dir, "demo", "main.go")); err != nil {
		return "", errors.New("run it in the directory test of the repository, as make demo does")
	}
	return dir, nil
}
