package main

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/nri-blkio/nri-blkio/test/generated"
)

// tolerance is the measured rate, divided by the limit, above which the demo fails.
const tolerance = 1.10

func printTable(w io.Writer, results []result) {
	fmt.Fprintln(w)
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "POD\tCONTAINER\tTARGET\tDISK\tREQUESTED\tIN FORCE (io.max)\tMEASURED (io.stat)\tOF REQUESTED")
	for _, r := range results {
		fmt.Fprintf(table, "%s\twriter\t%s\t%s\twbps=%d\t%s\t%.0f B/s for %.1f s\t%.1f %%\n", r.name, r.target, r.disk,
			r.requested, r.inForce, r.measured.Rate(), r.measured.Elapsed.Seconds(), 100*r.measured.Over(r.requested))
	}
	table.Flush()
	fmt.Fprintln(w)
}

// checkLimits returns an error for each limit that was exceeded or is not in force. Measure fails
// if nothing was written.
func checkLimits(results []result) error {
	var errs []error
	for _, r := range results {
		if want := "wbps=" + strconv.FormatInt(r.requested, 10); r.inForce != want {
			errs = append(errs, fmt.Errorf("pod %s: io.max has %q, want %q", r.name, r.inForce, want))
		}
		if r.measured.Over(r.requested) > tolerance {
			errs = append(errs, fmt.Errorf("pod %s writes %.0f B/s, limit %d", r.name, r.measured.Rate(), r.requested))
		}
	}
	return errors.Join(errs...)
}

// printNeighbour prints a table of the situations, and a plot of each figure.
func printNeighbour(w io.Writer, results []outcome) {
	fmt.Fprintln(w, "A victim reads 4 KiB at random, on a disk of 1,500 operations and 60 MiB per second.")
	fmt.Fprintln(w, "Its neighbour writes with four buffered writers, and reads at depth 32.")
	fmt.Fprintln(w)
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "SITUATION\tVICTIM READS/S\tP99, MS\tNEIGHBOUR MIB/S")
	for _, r := range results {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", r.name, generated.Number(r.victim.Rate), generated.Number(r.victim.P99), generated.Number(r.throughput))
	}
	table.Flush()
	printBars(w, "Victim's reads per second", results, func(r outcome) float64 { return r.victim.Rate })
	printBars(w, "99th percentile of their latency, ms", results, func(r outcome) float64 { return r.victim.P99 })
	printBars(w, "Neighbour's writes and reads, MiB/s", results, func(r outcome) float64 { return r.throughput })
	fmt.Fprintln(w)
}

// printBars plots a figure. The greatest value fills the width.
func printBars(w io.Writer, title string, results []outcome, figure func(outcome) float64) {
	const width = 40
	greatest, label := 0.0, 0
	for _, r := range results {
		greatest, label = max(greatest, figure(r)), max(label, len(r.name))
	}
	fmt.Fprintf(w, "\n%s\n", title)
	for _, r := range results {
		v, cells := figure(r), 0
		if v > 0 {
			cells = max(1, int(v/greatest*width+0.5))
		}
		fmt.Fprintf(w, "  %-*s |%s %s\n", label, r.name, strings.Repeat("#", cells), generated.Number(v))
	}
}

// checkNeighbour returns an error unless weights help the victim. `make table T=weights` measures how much.
func checkNeighbour(results []outcome) error {
	with, without := results[withWeights].victim.Rate, results[withNothing].victim.Rate
	if with < 2*without {
		return fmt.Errorf("the victim reads %.0f/s with weights and %.0f/s without, want at least twice as much with weights", with, without)
	}
	return nil
}
