package main

import (
	"fmt"

	"github.com/nri-blkio/nri-blkio/plugin/inspect"
)

// printDead writes the section of status's table, if there is something to say.
func (a *app) printDead(s *inspect.Status) error {
	if len(s.Dead) > 0 {
		fmt.Fprintln(a.stdout, "\nEnded containers with data left to write:")
		t := newTable(a.stdout, "POD", "CONTAINER", "DISK", "DRAINS AT", "LEFT", "SINCE")
		for _, r := range s.Dead {
			t.row(deadPodText(&r), r.Container, r.Disk, drainText(&r), leftText(&r), r.Since)
		}
		if err := t.flush(); err != nil {
			return err
		}
	}
	if s.DeadNote != "" {
		notes(a.stdout, "note", []string{s.DeadNote})
	}
	return nil
}

func deadPodText(r *inspect.DeadRow) string {
	if r.Namespace == "" {
		return r.Pod
	}
	return r.Namespace + "/" + r.Pod
}

func drainText(r *inspect.DeadRow) string {
	if r.Measured == 0 {
		return r.DrainsAt
	}
	return r.DrainsAt + ", measured " + formatBytes(r.Measured) + "/s"
}

func leftText(r *inspect.DeadRow) string {
	if r.Left == 0 {
		return "unknown"
	}
	return formatBytes(r.Left)
}
