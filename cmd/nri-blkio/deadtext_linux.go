package main

import "fmt"

// printDead writes the section of status's table, if there is something to say.
func (a *app) printDead(d *deadReport) error {
	if len(d.rows) > 0 {
		fmt.Fprintln(a.stdout, "\nEnded containers with data left to write:")
		t := newTable(a.stdout, "POD", "CONTAINER", "DISK", "DRAINS AT", "LEFT", "SINCE")
		for _, r := range d.rows {
			t.row(deadPodText(&r), r.Container, r.Disk, drainText(&r), leftText(&r), r.Since)
		}
		if err := t.flush(); err != nil {
			return err
		}
	}
	if d.note != "" {
		notes(a.stdout, "note", []string{d.note})
	}
	return nil
}

func deadPodText(r *deadRow) string {
	if r.Namespace == "" {
		return r.Pod
	}
	return r.Namespace + "/" + r.Pod
}

func drainText(r *deadRow) string {
	if r.Measured == 0 {
		return r.DrainsAt
	}
	return r.DrainsAt + ", measured " + formatBytes(r.Measured) + "/s"
}

func leftText(r *deadRow) string {
	if r.Left == 0 {
		return "unknown"
	}
	return formatBytes(r.Left)
}
