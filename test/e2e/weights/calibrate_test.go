package weights

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/diskmodel"
	"github.com/nri-blkio/nri-blkio/test/e2e/lab"
	"github.com/nri-blkio/nri-blkio/test/e2e/noise"
	"github.com/nri-blkio/nri-blkio/test/generated"
)

// calibration is the result of `calibrate -o json` for a disk.
type calibration struct {
	model  blkio.CostModel
	random float64 // reads of 4 KiB per second
	limits *diskmodel.Limits
}

// figures returns the model, in MiB and in operations per second, and the measured random reads.
func (c calibration) figures() map[string]float64 {
	return map[string]float64{
		"rbps": float64(c.model.Rbps) / lab.MiB, "rrandiops": float64(c.model.RRandIOPS),
		"wbps": float64(c.model.Wbps) / lab.MiB, "wrandiops": float64(c.model.WRandIOPS), "random": c.random,
	}
}

// calibrate calibrates a disk.
func calibrate(t *testing.T, disk string, args ...string) calibration {
	t.Helper()
	cmd, stdout, stderr := calibrating(t, disk, append(args, "-o", "json")...)
	start := time.Now()
	// An emulated node may be too slow for its disk: then the exit status is 1.
	if exit, ok := errors.AsType[*exec.ExitError](cmd.Run()); ok && exit.ExitCode() != 1 {
		t.Fatalf("calibrate: %v: %s", exit, stderr)
	}
	t.Logf("%v: %s", time.Since(start), stderr)
	var answer struct {
		Calibration struct {
			Model string
			Reads struct{ Random []struct{ IOPS float64 } }
		}
		Limits *diskmodel.Limits
	}
	if err := json.Unmarshal(stdout.Bytes(), &answer); err != nil {
		t.Fatalf("%v in %s", err, stdout)
	}
	lines, err := blkio.ParseIOCostModel("0:0 " + answer.Calibration.Model)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s, limits %+v", answer.Calibration.Model, answer.Limits)
	return calibration{lines[blkio.Dev{}].Model, answer.Calibration.Reads.Random[0].IOPS, answer.Limits}
}

// calibrating returns a calibration that was not started.
func calibrating(t *testing.T, disk string, args ...string) (cmd *exec.Cmd, stdout, stderr *bytes.Buffer) {
	stdout, stderr = new(bytes.Buffer), new(bytes.Buffer)
	cmd = exec.CommandContext(t.Context(), filepath.Join(lab.Node.Payload, "nri-blkio"), append([]string{"calibrate", disk}, args...)...)
	cmd.Stdout, cmd.Stderr = stdout, stderr
	return cmd, stdout, stderr
}

// agree fails unless two rates differ by at most 10 %.
func agree(t *testing.T, name string, a, b float64) {
	t.Helper()
	if a < 0.9*b || b < 0.9*a {
		t.Errorf("%s: two measurements differ by more than 10 %%: %.0f and %.0f", name, a, b)
	}
}

// free returns the free space of a filesystem, in bytes.
func free(t *testing.T, dir string) int64 {
	t.Helper()
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		t.Fatal(err)
	}
	return int64(st.Bfree) * st.Bsize
}

// TestCalibrationsAgree verifies that two calibrations of a disk agree with one another and with fio. It takes
// minutes, so it runs only in a proof.
//
//e2e:proof
func TestCalibrationsAgree(t *testing.T) {
	b := newSlowBench(t, sharedDisk)
	saved := t.TempDir()
	measured, fio := generated.Row{}, generated.Row{}
	var previous calibration
	for round := range figureRounds {
		// What was written before may still be on its way to the disk: hence --force.
		got := calibrate(t, sharedDisk, "--force", "--write-dir", b.dir, "--save", "--calibration-dir", saved)
		rate, _ := b.fio(noise.Reads()...)
		measured.Add(got.figures())
		fio.Add(map[string]float64{"random": rate})
		agree(t, "random reads, of calibrate and of fio", got.random, rate)
		if round > 0 {
			before := previous.figures()
			for name, v := range got.figures() {
				agree(t, name, before[name], v)
			}
		}
		previous = got
	}
	publish(t, &measured, "`calibrate`")
	publish(t, &fio, "fio, at depth 4")
	if files, err := os.ReadDir(saved); err != nil || len(files) != 1 {
		t.Errorf("saved calibrations: %v, %v, want one file", files, err)
	}
}

// TestCalibrate verifies that an interrupted calibration ends within a second and leaves nothing behind, and
// that only one calibration of a disk runs at a time.
func TestCalibrate(t *testing.T) {
	b := newSlowBench(t, sharedDisk)
	before := free(t, b.dir)
	b.interruptCalibration("the file is written", func(diskWork) error {
		if now := free(t, b.dir); now > before-64<<20 {
			return fmt.Errorf("%d of %d bytes are free, want 64 MiB less", now, before)
		}
		return nil
	}, func() {
		locked, _, stderr := calibrating(t, sharedDisk)
		if err := locked.Run(); err == nil || !strings.Contains(stderr.String(), "another program has locked it") {
			t.Errorf("a second calibration of the disk at the same time: error %v, stderr %q, want that another program has locked the disk", err, stderr)
		}
	})
	b.interruptCalibration("the disk is read", func(did diskWork) error {
		if did.reads < noise.SharedOperations {
			return fmt.Errorf("the disk did %.0f reads, want at least %v", did.reads, noise.SharedOperations)
		}
		return nil
	}, func() {})
	for disk, want := range map[string]string{
		"vdc1": "vdc1 is a partition: calibrate its disk, vdc",
		"vdz":  `find "vdz": no such disk`,
	} {
		cmd, _, stderr := calibrating(t, disk)
		if err := cmd.Run(); err == nil || !strings.Contains(stderr.String(), want) {
			t.Errorf("%s: %v: %s", disk, err, stderr)
		}
	}
}

// interruptCalibration starts a calibration, sends SIGINT once a state is reached and a function has run, and
// checks how it ends. A second of wall clock may be little for an emulated node: the disk must not
// do more, from the signal on, than it does in a second at its limits.
func (b *slowBench) interruptCalibration(state string, reached func(did diskWork) error, then func()) {
	b.Helper()
	const inTime = 1.2 // seconds: the disk lets the operations of a tenth pass at once
	running, _, _ := calibrating(b.T, sharedDisk, "--force", "--write-dir", b.dir)
	freeBefore, began := free(b.T, b.dir), b.diskWork()
	if err := running.Start(); err != nil {
		b.Fatal(err)
	}
	lab.Eventually(b.T, state, func() error { return reached(b.diskWork().since(began)) })
	then()
	atSignal, start := b.diskWork(), time.Now()
	if err := running.Process.Signal(syscall.SIGINT); err != nil {
		b.Fatal(err)
	}
	exit, ok := errors.AsType[*exec.ExitError](running.Wait())
	if !ok || exit.ExitCode() != 3 {
		b.Errorf("interrupted while %s: %v", state, exit)
	}
	after := b.diskWork().since(atSignal)
	b.Logf("interrupted while %s: it ended in %v, and the disk worked for %.2f s", state, time.Since(start), after.seconds())
	if after.seconds() > inTime {
		b.Errorf("interrupted while %s: the disk worked for %.2f s after the signal, want at most %.1f s: %+v", state, after.seconds(), inTime, after)
	}
	lab.Eventually(b.T, "nothing is left behind", func() error {
		if now := free(b.T, b.dir); now < freeBefore-1<<20 {
			return fmt.Errorf("%d of %d bytes are free: a file was left", now, freeBefore)
		}
		return nil
	})
}

// diskWork has the operations and bytes that the shared disk has done.
type diskWork struct{ reads, writes, bytes float64 }

// diskWork reads the counters of Documentation/block/stat.rst: the first is that of reads, the third
// that of the sectors read, the fifth and the seventh those of writes.
func (b *slowBench) diskWork() diskWork {
	b.Helper()
	data, err := os.ReadFile("/sys/block/" + sharedDisk + "/stat")
	if err != nil {
		b.Fatal(err)
	}
	var reads, merged, sectorsRead, ticks, writes, writesMerged, sectorsWritten float64
	if _, err := fmt.Sscan(string(data), &reads, &merged, &sectorsRead, &ticks, &writes, &writesMerged, &sectorsWritten); err != nil {
		b.Fatalf("%v in %q", err, data)
	}
	return diskWork{reads: reads, writes: writes, bytes: 512 * (sectorsRead + sectorsWritten)}
}

func (w diskWork) since(before diskWork) diskWork {
	return diskWork{reads: w.reads - before.reads, writes: w.writes - before.writes, bytes: w.bytes - before.bytes}
}

// seconds returns how long the disk needs for that at least.
func (w diskWork) seconds() float64 {
	return max((w.reads+w.writes)/noise.SharedOperations, w.bytes/noise.SharedBytes)
}
