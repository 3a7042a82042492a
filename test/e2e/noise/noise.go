// Package noise measures a victim beside a noisy neighbour on one disk. Both are fio in the cgroups
// of containers, so the node needs fio. The e2e tests and the demo use it.
package noise

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nri-blkio/nri-blkio/test/e2e/cgroup"
)

// SharedDisk does 1,500 operations and 60 MiB a second; test/node says so to QEMU.
const SharedDisk = "vdj"

// PolicyHead begins each policy file.
const PolicyHead = "apiVersion: blkio.noderesource.dev/v1alpha1\nkind: NodePolicy\n"

// Policy gives io.cost a model of the shared disk, and lets pods have any weight. It is what follows
// PolicyHead. The model is what the disk does, of which the plugin takes 97 %: with all of it the disk's own queue would
// decide, and not the weights.
const Policy = `bounds: {weight: {max: 10000}}
disks:
- match: {names: [` + SharedDisk + `]}
  model: {rbps: 62914560, rseqiops: 1500, rrandiops: 1500, wbps: 62914560, wseqiops: 1500, wrandiops: 1500}
`

// SharedOperations and SharedBytes are what the shared disk does in a second, which test/node says to QEMU.
const (
	SharedOperations = 1500
	SharedBytes      = 60 * MiB
)

// Headroom is the part of a policy's model that the plugin gives out.
const Headroom = 0.97

// PolicyWith returns a policy as Policy, with another part of what the disk does as the model in force, and a
// period of io.cost. With a period of 0 the plugin chooses one.
func PolicyWith(rate float64, period time.Duration) string {
	stated := rate / Headroom
	ops, bytes := math.Round(stated*SharedOperations), math.Round(stated*SharedBytes)
	text := fmt.Sprintf("bounds: {weight: {max: 10000}}\ndisks:\n- match: {names: [%s]}\n"+
		"  model: {rbps: %.0f, rseqiops: %.0f, rrandiops: %.0f, wbps: %.0f, wseqiops: %.0f, wrandiops: %.0f}\n", SharedDisk, bytes, ops, ops, bytes, ops, ops)
	if period != 0 { // without percentiles it is twice the latency target
		text += fmt.Sprintf("  qos: {rlat: %v, wlat: %v}\n", period/2, period/2)
	}
	return text
}

// Limit is the neighbour's limit in the cases with a limit.
const Limit = "wbps=10Mi rbps=10Mi riops=200"

// Settle is the time until what the neighbour writes reaches the disk, and weights follow.
const Settle = 5 * time.Second

// MiB is the number of bytes of a MiB.
const MiB = 1 << 20

// Disk is a disk with a mounted filesystem.
type Disk struct {
	Dir    string // where it is mounted
	Number string // "254:144"
}

// Result has fio's operations per second, and the 99th percentile of their latency in milliseconds.
type Result struct{ Rate, P99 float64 }

// Reads are the options for what the victim reads: at random, at depth 4, past the page cache.
func Reads() []string {
	return []string{"--rw=randread", "--direct=1", "--ioengine=libaio", "--iodepth=4"}
}

// victimBlock is the size of the victim's operations.
const victimBlock = 4 << 10

// VictimArgs are operations of 4 KiB on the victim's file for 5 s, reported as JSON, and what args change of that. A
// file of args is in place of the victim's: fio itself would use both.
func (d Disk) VictimArgs(args ...string) []string {
	out := []string{
		"--thread", "--name=victim", "--size=32M", "--bs=4k", "--overwrite=1",
		"--time_based", "--runtime=5", "--eta=never", "--output-format=json", "--group_reporting",
	}
	if !slices.ContainsFunc(args, func(arg string) bool { return strings.HasPrefix(arg, "--filename=") }) {
		out = append(out, "--filename="+d.victimFile())
	}
	return append(out, args...)
}

func (d Disk) victimFile() string { return filepath.Join(d.Dir, "victim") }

// Victim runs fio in a cgroup, by default for 5 s with operations of 4 KiB.
func (d Disk) Victim(ctx context.Context, name string, args ...string) (Result, error) {
	cmd := exec.CommandContext(ctx, "fio", d.VictimArgs(args...)...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := StartIn(name, cmd)
	if err == nil {
		err = cmd.Wait()
	}
	if err != nil {
		return Result{}, fmt.Errorf("%v: %w: %s", cmd, err, out.Bytes())
	}
	return parse(out.String())
}

// parse reads what fio reports. Warnings may come before it.
func parse(out string) (Result, error) {
	type direction struct {
		IOPS    float64
		Latency struct {
			Percentile map[string]float64
		} `json:"clat_ns"`
	}
	var answer struct {
		Jobs []struct{ Read, Write direction }
	}
	err := json.Unmarshal([]byte(out[max(0, strings.Index(out, "{")):]), &answer)
	if err == nil && len(answer.Jobs) != 1 {
		err = fmt.Errorf("%d jobs", len(answer.Jobs))
	}
	if err != nil {
		return Result{}, fmt.Errorf("fio: %w in %q", err, out)
	}
	d := answer.Jobs[0].Read
	if d.IOPS == 0 {
		d = answer.Jobs[0].Write
	}
	return Result{Rate: d.IOPS, P99: d.Latency.Percentile["99.000000"] / float64(time.Millisecond)}, nil
}

// StartIn starts a command in a cgroup, which can be a container's.
func StartIn(name string, cmd *exec.Cmd) error {
	dir, err := os.Open(filepath.Join(cgroup.Root, cgroup.OfProcesses(name)))
	if err != nil {
		return err
	}
	defer dir.Close()
	cmd.SysProcAttr = &unix.SysProcAttr{UseCgroupFD: true, CgroupFD: int(dir.Fd())}
	return cmd.Start()
}

// neighbourArgs are four buffered writers, and a reader at depth 32 of the victim's file.
func (d Disk) neighbourArgs() []string {
	return []string{
		"--thread", "--time_based", "--runtime=300", "--eta=never", "--directory=" + d.Dir, "--filename_format=noise.$jobnum", "--size=128M",
		"--name=write", "--rw=write", "--bs=1M", "--numjobs=4", "--fallocate=none",
		"--name=read", "--rw=randread", "--direct=1", "--bs=4k", "--ioengine=libaio", "--iodepth=32", "--filename=" + d.victimFile(), "--size=32M",
	}
}

// Neighbour starts the neighbour's noise in a cgroup. stop ends it, removes its files, and waits
// until the disk has nothing left to write.
func (d Disk) Neighbour(name string) (stop func() error, err error) {
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, "fio", d.neighbourArgs()...)
	if err := StartIn(name, cmd); err != nil {
		cancel()
		return nil, err
	}
	return func() error {
		cancel()
		_ = cmd.Wait() // killed
		files, err := filepath.Glob(filepath.Join(d.Dir, "noise.*"))
		for _, file := range files {
			err = errors.Join(err, os.Remove(file))
		}
		if out, syncErr := exec.Command("sync", "-f", d.Dir).CombinedOutput(); syncErr != nil {
			err = errors.Join(err, fmt.Errorf("sync: %w: %s", syncErr, out))
		}
		return err
	}, nil
}

// Rates are the rates at which a cgroup wrote to a disk and read from it, in MiB per second.
type Rates struct{ Wrote, Read float64 }

// While returns what a cgroup wrote and read while a function ran.
func (d Disk) While(name string, run func() error) (Rates, error) {
	dir, began := cgroup.Dir(name), time.Now()
	count := func() (wrote, read int64, err error) {
		wrote, err = dir.Counter(d.Number, "wbytes")
		read, readErr := dir.Counter(d.Number, "rbytes")
		return wrote, read, errors.Join(err, readErr)
	}
	wrote, read, err := count()
	if err != nil {
		return Rates{}, err
	}
	if err := run(); err != nil {
		return Rates{}, err
	}
	wroteAfter, readAfter, err := count()
	per := MiB * time.Since(began).Seconds()
	return Rates{Wrote: float64(wroteAfter-wrote) / per, Read: float64(readAfter-read) / per}, err
}

// CostLine returns the disk's line in a file of io.cost, without the number; "" if it has none.
func (d Disk) CostLine(file string) (string, error) {
	data, err := os.ReadFile(filepath.Join(cgroup.Root, file))
	if err != nil {
		return "", err
	}
	return lineOf(string(data), d.Number), nil
}

func lineOf(text, number string) string {
	for line := range strings.Lines(text) {
		if values, ok := strings.CutPrefix(strings.TrimSpace(line), number+" "); ok {
			return values
		}
	}
	return ""
}
