// Iotool is the program of the test containers: it reads or writes one file in a known
// pattern and says on one JSON line what it did and when. It is static and has no
// shell around it, so that its first I/O is the container's first.
//
//	iotool write --path P [--size N | --seconds S] [--block 64Ki] [--span 64Mi]
//	             [--direct | --mmap | --append | --files N] [--sync N] [--fsync]
//	iotool read  --path P [--size N | --seconds S] [--block 64Ki] [--span 64Mi] [--direct]
//	iotool print [--size N | --seconds S] [--block 8Ki]
//	iotool sleep [--seconds S]
//
// Print writes lines of one block to standard output.
// SIGTERM ends each of them early, with its line.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "iotool:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout io.Writer) error {
	if len(args) == 0 {
		return errors.New("want write, read, print or sleep")
	}
	job, err := parseJob(args[0], args[1:])
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, job.duration)
	defer cancel()
	if job.command == "sleep" {
		<-ctx.Done()
		return nil
	}
	report, err := job.stream(ctx)
	if err != nil {
		return err
	}
	report.IOStat = ownIOStat()
	return json.NewEncoder(stdout).Encode(report)
}

// job is one command line.
type job struct {
	command  string // write, read, print or sleep
	path     string
	size     int64 // bytes to move; MaxInt64 for no end
	duration time.Duration
	block    int64 // bytes of one call
	span     int64 // the file is gone over again after so many bytes
	direct   bool
	mmap     bool  // through a shared mapping
	append   bool  // at the end of the file, wherever that is
	files    int64 // the path is a directory with so many files of a block each; 0: it is a file
	sync     int64 // fsync after each so many bytes; 0: never
	fsync    bool
}

func parseJob(command string, args []string) (job, error) {
	j := job{command: command, size: math.MaxInt64, block: 64 << 10, span: 64 << 20, duration: math.MaxInt64}
	flags := flag.NewFlagSet("iotool "+command, flag.ContinueOnError)
	flags.Func("seconds", "end after so many `seconds`", func(s string) error {
		seconds, err := strconv.ParseFloat(s, 64)
		j.duration = time.Duration(seconds * float64(time.Second))
		return err
	})
	switch command {
	case "sleep":
	case "print":
		flags.Func("size", "end after so many `bytes`", bytesTo(&j.size))
		flags.Func("block", "`bytes` of a line", bytesTo(&j.block))
	case "write", "read":
		flags.StringVar(&j.path, "path", "", "the `file`")
		flags.Func("size", "end after so many `bytes`", bytesTo(&j.size))
		flags.Func("block", "`bytes` of one call", bytesTo(&j.block))
		flags.Func("span", "start over after so many `bytes` of the file", bytesTo(&j.span))
		flags.BoolVar(&j.direct, "direct", false, "O_DIRECT: past the page cache")
		flags.BoolVar(&j.mmap, "mmap", false, "through a shared mapping of --span bytes")
		flags.BoolVar(&j.append, "append", false, "at the end of the file")
		flags.Int64Var(&j.files, "files", 0, "the path is a directory with so `many` files of one block")
		flags.Func("sync", "fsync after each so many `bytes`", bytesTo(&j.sync))
		flags.BoolVar(&j.fsync, "fsync", false, "count the time until a write is on the disk")
	default:
		return job{}, fmt.Errorf("unknown command %q: want write, read, print or sleep", command)
	}
	if err := flags.Parse(args); err != nil {
		return job{}, err
	}
	if (command == "write" || command == "read") && (j.path == "" || j.block < 1 || j.span < j.block) {
		return job{}, errors.New("want --path, and --span of at least one --block")
	}
	return j, nil
}

// bytesTo parses a number of bytes with an optional Ki, Mi or Gi.
func bytesTo(to *int64) func(string) error {
	return func(s string) error {
		unit := int64(1)
		for suffix, factor := range map[string]int64{"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30} {
			if number, ok := strings.CutSuffix(s, suffix); ok {
				s, unit = number, factor
			}
		}
		n, err := strconv.ParseInt(s, 10, 64)
		*to = n * unit
		return err
	}
}
