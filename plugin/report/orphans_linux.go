package report

import (
	"bytes"
	"cmp"
	"fmt"
	"strings"

	"github.com/nri-blkio/nri-blkio/internal/terminal"
	"github.com/nri-blkio/nri-blkio/plugin/inspect"
)

const orphanHelp = `nri-blkio unmounts nothing. See that no pod of the cluster has the UID, end what holds the volume, and restart the
kubelet: it looks for such volumes as it starts. What is still there then: umount MOUNTPOINT on the node, and detach
or delete the volume as its driver says.`

func writeOrphans(out *bytes.Buffer, orphans []inspect.Orphan) {
	if len(orphans) == 0 {
		return
	}
	fmt.Fprintln(out, "\nOrphaned volumes, still mounted without a process of their pod:")
	for i := range orphans {
		o := &orphans[i]
		// The UID is always printed: another pod may have the same name.
		pod := terminal.Escape(o.UID)
		if o.Pod != "" {
			pod = terminal.Escape(PodName(o.Namespace, o.Pod)) + " (" + pod + ")"
		}
		on := o.Type
		if len(o.Disks) > 0 {
			on += " on " + strings.Join(o.Disks, ",")
		}
		fmt.Fprintf(out, "%s\n  volume %s of pod %s, %s\n  %s\n", terminal.Escape(o.Mountpoint), terminal.Escape(o.Volume), pod, terminal.Escape(on), o.Reason)
		for _, m := range firstOf(o.Mounts, false) {
			fmt.Fprintf(out, "  also mounted at %s\n", terminal.Escape(m))
		}
		writeMore(out, len(o.Mounts))
		for _, h := range firstOf(o.Holders, false) {
			fmt.Fprintf(out, "  held by %s\n", holderText(&h))
		}
		writeMore(out, len(o.Holders))
		if len(o.Holders) == 0 {
			fmt.Fprintln(out, "  no process was found that holds it")
		}
	}
	fmt.Fprintln(out, orphanHelp)
}

// writeOrphanTable writes the section of status.
func writeOrphanTable(out *bytes.Buffer, s *inspect.Status) {
	if len(s.Orphans) > 0 {
		fmt.Fprintln(out, "\nOrphaned volumes, still mounted without a process of their pod (\"nri-blkio devices\" lists the processes that hold them):")
		t := terminal.NewTable(out, "POD", "VOLUME", "DISK", "MOUNTPOINT", "WHY")
		for i := range s.Orphans {
			o := &s.Orphans[i]
			t.Row(cmp.Or(PodName(o.Namespace, o.Pod), o.UID), o.Volume, strings.Join(o.Disks, ","), o.Mountpoint, o.Reason)
		}
		t.Flush()
	}
	if s.OrphansNote != "" {
		terminal.Notes(out, "note", s.OrphansNote)
	}
}

func writeMore(out *bytes.Buffer, n int) {
	if n > maxRows {
		fmt.Fprintf(out, "  and %d more, in -o json\n", n-maxRows)
	}
}

// holderText describes a holder in one line. A process chooses its own comm.
func holderText(h *inspect.Holder) string {
	var how []string
	if h.OpenFiles > 0 {
		how = append(how, inspect.Count(h.OpenFiles, "open file"))
	}
	if h.WorkingDir {
		how = append(how, "its working directory is there")
	}
	if h.Mountpoint != "" {
		how = append(how, "its mount namespace has it at "+terminal.Shorten(terminal.Escape(h.Mountpoint), maxPath))
	}
	of := ""
	switch {
	case h.Pod != "":
		of = " of pod " + terminal.Escape(PodName(h.Namespace, h.Pod))
	case h.UID != "":
		of = " of pod " + terminal.Escape(h.UID)
	}
	return fmt.Sprintf("process %d (%s)%s: %s", h.PID, terminal.Escape(h.Comm), of, strings.Join(how, ", "))
}
