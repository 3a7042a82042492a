// Demo tells a story on a node that it boots: a pod reads from a disk, another one slows it down, why names that one, a
// class for its namespace brings the first one back, top shows both at work, and a mistake in an annotation is rejected.
// It prints what the pods measure. It exits with 1 if a step fails. It says so if other programs used the machine's
// processors meanwhile.
//
//	CGO_ENABLED=0 go run -trimpath ./demo
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/nri-blkio/nri-blkio/test/node"
	"github.com/nri-blkio/nri-blkio/test/payload"
)

const (
	limit = 20 * time.Minute // for the story, under emulation
	every = 10 * time.Second // the longest silence

	story = "story" // the program that runs in the node
)

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
	if len(args) > 0 {
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
	dir, err := os.MkdirTemp("", "demo")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	p := &progress{stdout: stdout, stderr: stderr}
	defer p.start(every)()
	cfg.Small, cfg.Log = true, p.steps()
	if err := prepare(ctx, cfg, module, dir); err != nil {
		return err
	}
	return play(ctx, cfg, dir, p)
}

// prepare builds the node, and what runs there into dir, at the same time: one waits for downloads, the other one compiles.
func prepare(ctx context.Context, cfg node.Config, module, dir string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	fmt.Fprintln(cfg.Log, "demo: compiling nri-blkio")
	compiled := make(chan error, 1)
	go func() {
		err := payload.Small(ctx, module, dir, payload.Program{Name: story, Package: "./demo/story"})
		if err != nil {
			cancel()
		}
		compiled <- err
	}()
	err := node.Build(ctx, cfg)
	if err != nil {
		cancel()
	}
	return errors.Join(err, <-compiled)
}

// play boots the node, and runs the story there.
func play(ctx context.Context, cfg node.Config, dir string, p *progress) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not done within %v", limit))
	defer cancel()
	n, err := node.Start(ctx, cfg)
	if err != nil {
		return err
	}
	defer n.Stop()
	fmt.Fprintln(cfg.Log, "demo: copying nri-blkio to the node")
	if err := n.Copy(ctx, dir, payload.Guest); err != nil {
		return err
	}
	before, err := usageOf(n.CPUTime)
	if err != nil {
		return err
	}
	code, err := n.Run(ctx, nil, p.text(), p.steps(), payload.Guest+"/"+story)
	if err != nil {
		return fmt.Errorf("%w\nthe node's console:\n%s", err, n.Console(60))
	}
	after, err := usageOf(n.CPUTime)
	if err != nil {
		return err
	}
	return verdict(code, busyText(after.byOthers(before)), cfg.Log)
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
		return errors.New("the demo failed in the node")
	}
	return fmt.Errorf("the demo failed in the node, and that may not be the fault of limits: %s", busy)
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
