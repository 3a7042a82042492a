// Bench measures what the plugin costs, prints one table of it, and writes the
// table into docs/reference/benchmarks.md. Nothing in it passes or fails: a goal that is
// missed is printed as missed.
//
//	go run ./bench               # all, as root
//	go run ./bench -only host    # or node; prints, writes no file
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/nri-blkio/nri-blkio/test/node"
	"github.com/nri-blkio/nri-blkio/test/payload"
)

// limit is the time for the half that runs in the node, emulated.
const limit = 30 * time.Minute

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// options are the command line's.
type options struct {
	inNode   bool
	only     string
	patience time.Duration
	doc      string
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	var o options
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.BoolVar(&o.inNode, "in-node", false, "how it calls itself in the node; there -only takes cri, reconcile or run")
	flags.StringVar(&o.only, "only", "", `"host" or "node": half of it, and no file is written`)
	flags.DurationVar(&o.patience, "patience", 10*time.Minute, "how long to wait for a quiet machine")
	flags.StringVar(&o.doc, "doc", "../docs/reference/benchmarks.md", "the file to write the table into")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if o.inNode {
		return inNode(ctx, o.only, stdout, stderr)
	}
	if _, err := os.Stat("bench/main.go"); err != nil {
		return errors.New("run it in the directory test of the repository, as make table T=bench does")
	}
	r := report{figures: figures{}}
	if o.only != "node" {
		if err := onHost(ctx, o, &r, stderr); err != nil {
			return err
		}
	}
	if o.only != "host" {
		if err := onNode(ctx, &r, stderr); err != nil {
			return err
		}
	}
	if err := r.print(stdout); err != nil || o.only != "" {
		return err
	}
	return r.write(o.doc)
}

// onNode boots a node and runs the half that needs one there.
func onNode(ctx context.Context, r *report, stderr io.Writer) error {
	cfg, err := node.ConfigFromEnv()
	if err != nil {
		return err
	}
	cfg.Log = stderr
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := payload.Build(ctx, ".", dir, payload.Program{Name: "bench", Package: "./bench"}); err != nil {
		return err
	}
	if err := buildPluginTests(ctx, dir); err != nil {
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
	virt, _ := n.Output(ctx, "systemd-detect-virt") // "qemu" is emulated, "kvm" is not
	r.describeNode(cfg, virt)
	out, in := io.Pipe()
	done := make(chan error, 1)
	go func() { done <- r.figures.read(io.TeeReader(out, stderr)) }()
	code, err := n.Run(ctx, nil, in, stderr, payload.Guest+"/bench", "-in-node")
	in.Close()
	if readErr := <-done; err == nil {
		err = readErr
	}
	if err != nil {
		return fmt.Errorf("%w\nthe node's console:\n%s", err, n.Console(60))
	}
	if code != 0 {
		return fmt.Errorf("the half in the node ended with status %d", code)
	}
	return nil
}

// pluginBenchmarks are the plugin's own benchmarks, by their package below plugin: those for the host, with the number of their runs, and
// for the node. 400 creates make the 99th percentile the fifth worst.
var pluginBenchmarks = []struct { // constant
	name   string
	onHost [][2]string
	onNode string
}{
	{"node", [][2]string{{"CreateContainer", "400x"}, {"Resolve$", "100x"}, {"Reconcile", "200x"}, {"Scrape", "50x"}}, "Reconcile|Scrape"},
	{"why", [][2]string{{"Top", "50x"}}, "Top"},
}

// buildPluginTests builds the plugin's own benchmarks.
func buildPluginTests(ctx context.Context, dir string) error {
	for _, bench := range pluginBenchmarks {
		cmd := exec.CommandContext(ctx, "go", "test", "-c", "-o", filepath.Join(dir, bench.name+".test"), "./plugin/"+bench.name)
		cmd.Dir = ".."
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%v: %w\n%s", cmd, err, out)
		}
	}
	return nil
}
