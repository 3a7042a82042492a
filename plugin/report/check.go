// Package report writes the results of the commands as text for a terminal: sections, tables, and notes. Each
// function writes one typed value of plugin/inspect, plugin/check or blkio/calibrate, and escapes
// the text of tenants and devices. It reads nothing, so that the same value gives the same text.
package report

import (
	"bytes"
	"cmp"
	"fmt"
	"strings"

	"github.com/nri-blkio/nri-blkio/internal/terminal"
	"github.com/nri-blkio/nri-blkio/plugin/check"
)

// WriteCheck writes the findings in manifests, then the pods. A wide table has the lines for the kernel.
func WriteCheck(out *bytes.Buffer, r *check.Report, isWide bool) {
	for i := range r.Findings {
		terminal.Notes(out, string(r.Findings[i].Severity), r.Findings[i].String())
	}
	if len(r.Pods) == 0 && r.Claims > 0 {
		fmt.Fprintf(out, "claims and classes of claims: %d\n", r.Claims)
	}
	shared, pods := sharedUnknown(r.Pods)
	for i := range r.Pods {
		if i > 0 || len(r.Findings) > 0 {
			fmt.Fprintln(out)
		}
		writePod(out, &r.Pods[i], isWide)
		for _, line := range r.Pods[i].Unknown {
			if pods[line] == 1 {
				terminal.Notes(out, "unknown", line)
			}
		}
	}
	if len(shared) > 0 {
		fmt.Fprintln(out)
	}
	for _, line := range shared {
		terminal.Notes(out, "unknown", fmt.Sprintf("%s (%d pods)", line, pods[line]))
	}
}

func sharedUnknown(results []check.Result) (shared []string, pods map[string]int) {
	pods = map[string]int{}
	for i := range results {
		for _, line := range results[i].Unknown {
			if pods[line]++; pods[line] == 2 {
				shared = append(shared, line)
			}
		}
	}
	return shared, pods
}

func writePod(out *bytes.Buffer, r *check.Result, isWide bool) {
	rule := ""
	if r.Rule != "" {
		rule = " (rule " + r.Rule + ")"
	}
	name := []string{terminal.Escape(PodName(r.Namespace, r.Name))}
	if r.Kind != "" {
		name = append([]string{terminal.Escape(r.Kind)}, name...)
	} else if r.Name == "" { // such as the values of a Helm chart
		name = []string{terminal.Escape(r.Position.String())}
	}
	if r.Template != "" {
		name = append(name, terminal.Escape(r.Template))
	}
	fmt.Fprintf(out, "%s%s\n", strings.Join(name, " "), rule)
	if len(r.Writes) > 0 {
		writeLimits(out, r.Writes, isWide)
	} else if len(r.Errors) == 0 && (r.Template == "" || len(r.Unknown) == 0) {
		fmt.Fprintln(out, "nothing to limit")
	}
	writeEffects(out, r.Weights)
	terminal.Notes(out, "error", r.Errors...)
	terminal.Notes(out, "effect", r.Effects...)
	terminal.Notes(out, "warning", r.Warnings...)
	terminal.Notes(out, "skipped", r.Skipped...)
	terminal.Notes(out, "note", r.Notes...)
}

// writeLimits writes the table of a pod. The backstop, which limits no more than the containers' limits do, is in a wide one only.
func writeLimits(out *bytes.Buffer, writes []check.Write, isWide bool) {
	if isWide {
		t := terminal.NewTable(out, "CGROUP", "DISK", "FILE", "LINE", "FROM")
		for _, w := range writes {
			t.Row(w.Cgroup(), w.Disk, w.File, w.Line, w.From())
		}
		t.Flush()
		return
	}
	t := terminal.NewTable(out, "CONTAINER", "DISK", "LIMIT", "FROM")
	for _, w := range writes {
		if !w.IsBackstop() {
			t.Row(containerOrPod(w.Container), w.Disk, w.Limit, w.From())
		}
	}
	t.Flush()
}

func writeEffects(out *bytes.Buffer, weights []check.WeightEffect) {
	if len(weights) == 0 {
		return
	}
	t := terminal.NewTable(out, "WEIGHT OF", "DISK", "WEIGHT", "IO.COST")
	for i := range weights {
		w := &weights[i]
		name, state := "pod", w.State+": "+w.Reason
		if w.Container != "" {
			name = "container " + w.Container
		}
		if w.Reason == "" {
			state = w.State + ", model from " + w.Model
		}
		t.Row(name, w.Disk, fmt.Sprint(w.Weight), state)
	}
	t.Flush()
}

// share returns a part of a disk, from 0 to 1, in percent.
func share(part float64) string { return fmt.Sprintf("%.1f%%", 100*part) }

// PodName names a pod by its namespace and name; "" if its name is not known.
func PodName(namespace, pod string) string {
	if namespace == "" || pod == "" {
		return pod
	}
	return namespace + "/" + pod
}

// ContainerName names a container of a pod, or the pod if container is "".
func ContainerName(namespace, pod, container string) string {
	if container == "" {
		return PodName(namespace, pod)
	}
	return PodName(namespace, pod) + " " + container
}

// containerOrPod names the cgroup of a container, or that of the pod if container is "".
func containerOrPod(container string) string { return cmp.Or(container, "(the pod)") }
