package main

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
)

// figures are the results of benchmarks, by benchmark and unit.
type figures map[string]map[string]float64

// read adds lines in the format of `go test -bench`; others are passed over.
// The node's half says "Node" in each name, and has no number of CPUs there:
//
//	BenchmarkReconcile/changed=0-2    200    8911 ns/op    0 writes    12 B/op
func (f figures) read(r io.Reader) error {
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		if len(words) < 4 || !strings.HasPrefix(words[0], "Benchmark") {
			continue
		}
		name := strings.TrimPrefix(words[0], "Benchmark")
		if i := strings.LastIndexByte(name, '-'); i > 0 {
			if _, err := strconv.Atoi(name[i+1:]); err == nil {
				name = name[:i]
			}
		}
		if f[name] == nil {
			f[name] = map[string]float64{}
		}
		for pair := range slices.Chunk(words[2:], 2) {
			if len(pair) < 2 {
				return fmt.Errorf("read benchmark line %q: odd number of words", lines.Text())
			}
			value, err := strconv.ParseFloat(pair[0], 64)
			if err != nil {
				return fmt.Errorf("read benchmark line %q: %w", lines.Text(), err)
			}
			f[name][pair[1]] = value
		}
	}
	return lines.Err()
}

// line prints results the way read takes them.
func line(w io.Writer, name string, n int, values map[string]float64) {
	fmt.Fprintf(w, "Benchmark%s %d", name, n)
	for unit, v := range values {
		fmt.Fprintf(w, " %g %s", v, unit)
	}
	fmt.Fprintln(w)
}

// percentile sorts d.
func percentile(d []time.Duration, p int) time.Duration {
	slices.Sort(d)
	return d[(len(d)-1)*p/100]
}

func micros(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }

// kind is the format of a figure.
type kind int

const (
	duration kind = iota // in microseconds
	size                 // in bytes
	count
	ratio
)

func (k kind) format(v float64) string {
	switch k {
	case duration:
		return inUnits(v, 1000, "µs", "ms", "s")
	case size:
		return inUnits(v, 1024, "B", "KiB", "MiB")
	case count:
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	return strconv.FormatFloat(v, 'f', 3, 64)
}

// inUnits writes three digits, and none after the point of the smallest unit.
func inUnits(v, step float64, units ...string) string {
	i := 0
	for v >= step && i < len(units)-1 {
		v, i = v/step, i+1
	}
	digits := 0
	if i > 0 && v < 100 {
		digits = 1
	}
	return strconv.FormatFloat(v, 'f', digits, 64) + " " + units[i]
}
