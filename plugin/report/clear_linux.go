package report

import (
	"fmt"
	"io"

	"github.com/nri-blkio/nri-blkio/internal/terminal"
	"github.com/nri-blkio/nri-blkio/plugin/record"
)

// Clearing writes the steps of clear as they are made. It is a clear.Reporter.
type Clearing struct {
	Out    io.Writer
	DryRun bool // the steps are not made
}

// Cgroup writes the steps for one cgroup.
func (c *Clearing) Cgroup(r *record.Record, steps []string) {
	c.write(terminal.Escape(ContainerName(r.Namespace, r.Pod, r.Container))+": ", steps)
}

// Node writes the steps for the node as a whole.
func (c *Clearing) Node(steps []string) { c.write("", steps) }

func (c *Clearing) write(subject string, steps []string) {
	for _, step := range steps {
		if c.DryRun {
			step = "would " + step
		}
		fmt.Fprintf(c.Out, "%s%s\n", subject, terminal.EscapeLine(step))
	}
}
