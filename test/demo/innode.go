package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/nri-blkio/nri-blkio/test/e2e/cgroup"
	"github.com/nri-blkio/nri-blkio/test/e2e/cri"
	"github.com/nri-blkio/nri-blkio/test/payload"
)

const (
	startup  = 5 * time.Minute  // for the kubelet's pods to run, emulated
	settle   = 2 * time.Second  // of I/O before measuring
	duration = 8 * time.Second  // of measuring, at least
	hurry    = 90 * time.Second // for measuring at most
)

// tolerance is how much above what was asked fails the demo.
const tolerance = 1.10

// result is one line of the table.
type result struct {
	pod
	inForce  string
	measured cgroup.Measurement
}

// inNode is the part that runs inside the node.
func inNode(ctx context.Context, stdout io.Writer) error {
	if err := command(ctx, "ctr", "-n", "k8s.io", "images", "import", "--local", filepath.Join(payload.Guest, "iotool.tar")); err != nil {
		return err
	}
	stop, err := startPlugin(ctx)
	if err != nil {
		return err
	}
	defer stop()
	if err := drop(); err != nil {
		return err
	}
	if err := command(ctx, "systemctl", "start", "kubelet"); err != nil {
		return err
	}
	client, err := cri.Dial(driver())
	if err != nil {
		return err
	}
	defer client.Close()
	results, err := measureAll(ctx, client)
	if err != nil {
		return err
	}
	printTable(stdout, results)
	return judge(results)
}

// startPlugin starts `nri-blkio run` and waits until it serves the node.
func startPlugin(ctx context.Context) (stop func(), err error) {
	log, err := os.CreateTemp("", "nri-blkio-*.log")
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, filepath.Join(payload.Guest, "nri-blkio"), "run")
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	stop = func() {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()
	}
	for range 300 {
		text, err := os.ReadFile(log.Name())
		if err == nil && bytes.Contains(text, []byte("Synchronized with the runtime")) {
			return stop, nil
		}
		time.Sleep(100 * time.Millisecond)
	}
	stop()
	text, _ := os.ReadFile(log.Name())
	return nil, fmt.Errorf("nri-blkio did not register with the runtime:\n%s", text)
}

// measureAll waits for each pod and measures it, all at the same time.
func measureAll(ctx context.Context, client *cri.Client) ([]result, error) {
	results, errs := make([]result, len(pods)), make([]error, len(pods))
	var wg sync.WaitGroup
	for i, p := range pods {
		wg.Go(func() {
			results[i], errs[i] = measure(ctx, client, p)
			if errs[i] != nil {
				errs[i] = fmt.Errorf("pod %s: %w", p.name, errs[i])
			}
		})
	}
	wg.Wait()
	return results, errors.Join(errs...)
}

func measure(ctx context.Context, client *cri.Client, p pod) (result, error) {
	dir, err := await(ctx, client, p)
	if err != nil {
		return result{}, err
	}
	device, err := cgroup.Disk(p.disk)
	if err != nil {
		return result{}, err
	}
	limits, err := dir.IOMax()
	if err != nil {
		return result{}, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, hurry, fmt.Errorf("measured for %v", hurry))
	defer cancel()
	m, err := dir.Measure(ctx, device, "wbytes", settle, duration)
	return result{pod: p, inForce: limits[device], measured: m}, err
}

// await returns the cgroup of a pod's writer once it runs.
func await(ctx context.Context, client *cri.Client, p pod) (cgroup.Dir, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, startup, fmt.Errorf("it does not run after %v", startup))
	defer cancel()
	// The kubelet appends the node's name to the name of a static pod.
	host, err := os.Hostname()
	if err != nil {
		return "", err
	}
	for {
		found, err := client.Running(ctx, "io.kubernetes.pod.name", p.name+"-"+strings.ToLower(host))
		if writer := found["writer"]; err == nil && writer != nil {
			return cgroup.Dir(writer.Cgroup), nil
		}
		select {
		case <-time.After(500 * time.Millisecond):
		case <-ctx.Done():
			return "", errors.Join(context.Cause(ctx), err)
		}
	}
}

func printTable(w io.Writer, results []result) {
	fmt.Fprintln(w)
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "POD\tCONTAINER\tTARGET\tDISK\tREQUESTED\tIN FORCE (io.max)\tMEASURED (io.stat)\tOF REQUESTED")
	for _, r := range results {
		fmt.Fprintf(table, "%s\twriter\t%s\t%s\twbps=%d\t%s\t%.0f B/s for %.1f s\t%.1f %%\n", r.name, r.target, r.disk,
			r.asked, r.inForce, r.measured.Rate(), r.measured.Elapsed.Seconds(), 100*r.measured.Over(r.asked))
	}
	table.Flush()
	fmt.Fprintln(w)
}

// judge reports whether the limits held. Measure has seen to it that something was
// written.
func judge(results []result) error {
	var errs []error
	for _, r := range results {
		if want := "wbps=" + strconv.FormatInt(r.asked, 10); r.inForce != want {
			errs = append(errs, fmt.Errorf("pod %s: io.max has %q, want %q", r.name, r.inForce, want))
		}
		if r.measured.Over(r.asked) > tolerance {
			errs = append(errs, fmt.Errorf("pod %s: %.0f B/s, asked were %d", r.name, r.measured.Rate(), r.asked))
		}
	}
	return errors.Join(errs...)
}

// driver is the cgroup driver that the node was booted with.
func driver() string {
	cmdline, _ := os.ReadFile("/proc/cmdline") // none: the default
	for word := range strings.FieldsSeq(string(cmdline)) {
		if value, ok := strings.CutPrefix(word, "nri_node.driver="); ok {
			return value
		}
	}
	return "systemd"
}

func command(ctx context.Context, name string, args ...string) error {
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, out)
	}
	return nil
}
