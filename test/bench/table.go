package main

import (
	"fmt"
	"io"
	"runtime"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/nri-blkio/nri-blkio/test/generated"
	"github.com/nri-blkio/nri-blkio/test/node"
)

// row is one figure of the table.
type row struct {
	what string
	name string // of the benchmark
	unit string
	kind
	goal float64 // at most; noGoal: none
}

const noGoal = -1

// rows is the table. What starts with "Node" is measured in the node.
func rows() []row {
	const mib = 1 << 20
	out := []row{
		{"CreateContainer, the table read: p50", "CreateContainer", "create-p50-µs", duration, 50},
		{"CreateContainer, the table read: p99", "CreateContainer", "create-p99-µs", duration, 200},
		{"- of another pod right after: p50", "CreateContainer", "second-p50-µs", duration, noGoal},
		{"- p99", "CreateContainer", "second-p99-µs", duration, noGoal},
		{"- allocated", "CreateContainer", "create-B", size, noGoal},
		{"- allocations", "CreateContainer", "create-allocs", count, noGoal},
		{"5,000 mounts resolved, the table read: p50", "Resolve", "resolving-p50-µs", duration, 50_000},
		{"- cold, with reading the table: p50", "Resolve", "cold-p50-µs", duration, noGoal},
		{"- the answer for one from then on: p50", "Resolve", "known-p50-µs", duration, 1},
		{"reading the changed table: p50", "CreateContainer", "table-p50-µs", duration, noGoal},
		{"reading the changed table: p99", "CreateContainer", "table-p99-µs", duration, noGoal},
		{"- allocated", "CreateContainer", "table-B", size, noGoal},
		{"- allocations", "CreateContainer", "table-allocs", count, noGoal},
	}
	for _, where := range []string{"", "Node"} {
		files := "plain files"
		if where != "" {
			files = "cgroupfs"
		}
		out = append(out,
			row{"a pass, " + files + ", no pod changed", where + "Reconcile/changed=0", "ns/op", duration, 5000},
			row{"- pods written to", where + "Reconcile/changed=0", "writes", count, 0},
			row{"- 1 pod changed", where + "Reconcile/changed=1", "ns/op", duration, noGoal},
			row{"- 10 pods changed", where + "Reconcile/changed=10", "ns/op", duration, noGoal},
			row{"- all pods changed", where + "Reconcile/changed=250", "ns/op", duration, noGoal},
			row{"a scrape, " + files + ", 250 pods with limits", where + "Scrape/limited=250", "ns/op", duration, 50_000},
			row{"- series", where + "Scrape/limited=250", "series", count, 2000},
			row{"a refresh of top, " + files, where + "Top", "ns/op", duration, 50_000})
	}
	return append(out,
		row{"memory of run: RssAnon, after two resyncs", "NodeRun/settled", "RssAnon-B", size, 20 * mib},
		row{"- VmHWM, which counts the program's file too", "NodeRun/settled", "VmHWM-B", size, noGoal},
		row{"- RssAnon, after 300 creates", "NodeRun/churned", "RssAnon-B", size, 20 * mib},
		row{"- VmHWM, after 300 creates", "NodeRun/churned", "VmHWM-B", size, noGoal},
		row{"CreateContainer through NRI, the table read: p50", "NodeNRI/same", "create-p50-µs", duration, noGoal},
		row{"- p99", "NodeNRI/same", "create-p99-µs", duration, noGoal},
		row{"- the table changed: p50", "NodeNRI/changed", "create-p50-µs", duration, noGoal},
		row{"StartContainer through NRI: p50", "NodeNRI/start", "start-p50-µs", duration, noGoal},
		row{"CRI create and start, without the plugin: median", "NodeCRI", "without-p50-µs", duration, noGoal},
		row{"- with the plugin: median", "NodeCRI", "with-p50-µs", duration, noGoal},
		row{"- with / without", "NodeCRI", "ratio", ratio, noGoal})
}

// report is all that a run has found out.
type report struct {
	figures      figures
	host, node   string
	nodeEmulated bool
}

func (r *report) describeHost(before, after float64) {
	r.host = fmt.Sprintf("Linux %s, %d CPUs (%s), load average %.2f before and %.2f after",
		kernelRelease(), runtime.NumCPU(), cpuModel(), before, after)
}

func (r *report) describeNode(cfg node.Config, virt string) {
	r.nodeEmulated = strings.TrimSpace(virt) != "kvm"
	how := "KVM"
	if r.nodeEmulated {
		how = "emulated by QEMU (TCG)"
	}
	r.node = fmt.Sprintf("%s; 2 CPUs, %s", cfg, how)
}

// cells is a row as text, false if it was not measured.
func (r *report) cells(w row) (cells [4]string, ok bool) {
	inNode := strings.HasPrefix(w.name, "Node")
	v, ok := r.figures[w.name][w.unit]
	if !ok {
		return cells, false
	}
	if w.unit == "ns/op" {
		v /= 1e3
	}
	goal := ""
	if w.goal != noGoal {
		verdict := "met"
		if v > w.goal {
			verdict = "**missed**"
		}
		// What an emulated CPU takes says nothing of a real one; memory
		// and the number of writes are the same on both.
		if inNode && r.nodeEmulated && w.kind == duration {
			verdict = "not judged"
		}
		goal = w.format(w.goal) + ", " + verdict
	}
	where := "host"
	if inNode {
		where = "node"
	}
	return [4]string{w.what, w.format(v), goal, where}, true
}

func (r *report) print(w io.Writer) error {
	fmt.Fprintln(w)
	if r.host != "" {
		fmt.Fprintln(w, "host:", r.host)
	}
	if r.node != "" {
		fmt.Fprintln(w, "node:", r.node)
	}
	fmt.Fprintln(w)
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "FIGURE\tMEASURED\tGOAL, AT MOST\tWHERE")
	for _, row := range rows() {
		if cells, ok := r.cells(row); ok {
			fmt.Fprintln(table, strings.ReplaceAll(strings.Join(cells[:], "\t"), "**", ""))
		}
	}
	return table.Flush()
}

// write puts the table into a file.
func (r *report) write(file string) error {
	var b strings.Builder
	version, _ := generated.Commit() // of no consequence
	fmt.Fprintf(&b, "- %s, %s, %s/%s, commit %s\n", time.Now().Format(time.DateOnly), runtime.Version(), runtime.GOOS,
		runtime.GOARCH, version)
	fmt.Fprintf(&b, "- host: %s\n- node: %s\n\n", r.host, r.node)
	fmt.Fprintf(&b, "| figure | measured | goal, at most | where |\n|---|---|---|---|\n")
	for _, row := range rows() {
		if cells, ok := r.cells(row); ok {
			fmt.Fprintf(&b, "| %s |\n", strings.Join(cells[:], " | "))
		}
	}
	return generated.Replace(file, "", b.String())
}
