package report

import (
	"fmt"
	"io"
	"slices"

	"github.com/nri-blkio/nri-blkio/internal/terminal"
	"github.com/nri-blkio/nri-blkio/plugin/record"
)

// Clearing writes the steps of clear as they are made. It is a clear.Reporter.
type Clearing struct {
	Out    io.Writer
	DryRun bool // the steps are not made
	Brief  bool // write one line for each pod with steps, instead of each step for a cgroup

	done []string // the pods of these lines
}

// Cgroup writes the steps for one cgroup, or keeps the pod for Node.
func (c *Clearing) Cgroup(r *record.Record, steps []string) {
	if c.Brief {
		if pod := PodName(r.Namespace, r.Pod); len(steps) > 0 && !slices.Contains(c.done, pod) {
			c.done = append(c.done, pod)
		}
		return
	}
	c.write(terminal.Escape(ContainerName(r.Namespace, r.Pod, r.Container))+": ", steps)
}

// Node writes the pods that Cgroup has kept, then the steps for the node as a whole.
func (c *Clearing) Node(steps []string) {
	for _, pod := range c.done {
		fmt.Fprintf(c.Out, "%s: done\n", terminal.Escape(pod))
	}
	c.write("", steps)
}

// write writes a line for each step, after the subject.
func (c *Clearing) write(subject string, steps []string) {
	for _, step := range steps {
		if c.DryRun {
			step = "would " + step
		}
		fmt.Fprintf(c.Out, "%s%s\n", subject, terminal.EscapeLine(step))
	}
}
