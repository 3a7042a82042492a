package main

import (
	"fmt"
	"strings"

	"github.com/nri-blkio/nri-blkio/plugin/inspect"
)

const orphanHelp = `nri-blkio unmounts nothing. See that no pod of the cluster has the UID, end what holds the volume, and restart the
kubelet: it looks for such volumes as it starts. What is still there then: umount MOUNTPOINT on the node, and detach
or delete the volume as its driver says.`

// printOrphans writes the section of devices: all that an operator needs to be
// rid of them.
func (a *app) printOrphans(list []inspect.Orphan) {
	if len(list) == 0 {
		return
	}
	fmt.Fprintln(a.stdout, "\nOrphaned volumes, still mounted without a process of their pod:")
	for i := range list {
		o := &list[i]
		fmt.Fprintf(a.stdout, "%s\n  volume %s of pod %s, %s\n  %s\n", safe(o.Mountpoint), safe(o.Volume), fullOwner(o), safe(storedOn(o)), o.Reason)
		for _, m := range first(o.Mounts) {
			fmt.Fprintf(a.stdout, "  also mounted at %s\n", safe(m))
		}
		printMore(a, len(o.Mounts))
		for _, h := range first(o.Holders) {
			fmt.Fprintf(a.stdout, "  held by %s\n", holderText(&h))
		}
		printMore(a, len(o.Holders))
		if len(o.Holders) == 0 {
			fmt.Fprintln(a.stdout, "  no process was found that holds it")
		}
	}
	fmt.Fprintln(a.stdout, orphanHelp)
}

func first[T any](list []T) []T { return list[:min(len(list), maxRows)] }

func printMore(a *app, n int) {
	if n > maxRows {
		fmt.Fprintf(a.stdout, "  and %d more, in -o json\n", n-maxRows)
	}
}

// fullOwner has the UID in any case: a pod of the same name may be there.
func fullOwner(o *inspect.Orphan) string {
	if o.Pod == "" {
		return safe(o.UID)
	}
	return safe(ownerOf(o)) + " (" + safe(o.UID) + ")"
}

// printOrphanTable writes the section of status.
func (a *app) printOrphanTable(s *inspect.Status) error {
	if len(s.Orphans) > 0 {
		fmt.Fprintln(a.stdout, "\nOrphaned volumes, still mounted without a process of their pod (\"nri-blkio devices\" lists the processes that hold them):")
		t := newTable(a.stdout, "POD", "VOLUME", "DISK", "MOUNTPOINT", "WHY")
		for i := range s.Orphans {
			o := &s.Orphans[i]
			t.row(ownerOf(o), o.Volume, strings.Join(o.Disks, ","), o.Mountpoint, o.Reason)
		}
		if err := t.flush(); err != nil {
			return err
		}
	}
	if s.OrphansNote != "" {
		notes(a.stdout, "note", []string{s.OrphansNote})
	}
	return nil
}

// ownerOf names the pod.
func ownerOf(o *inspect.Orphan) string {
	if o.Pod == "" {
		return o.UID
	}
	return o.Namespace + "/" + o.Pod
}

// storedOn names what an orphan is stored on.
func storedOn(o *inspect.Orphan) string {
	if len(o.Disks) == 0 {
		return o.Type
	}
	return o.Type + " on " + strings.Join(o.Disks, ",")
}

func plural(n int, word string) string {
	if n == 1 {
		return word
	}
	return word + "s"
}

// holderText describes a holder in one line of text. A process chooses its comm itself, so it is not trusted.
func holderText(h *inspect.Holder) string {
	var how []string
	if h.OpenFiles > 0 {
		how = append(how, fmt.Sprintf("%d open %s", h.OpenFiles, plural(h.OpenFiles, "file")))
	}
	if h.WorkingDir {
		how = append(how, "its working directory is there")
	}
	if h.Mountpoint != "" {
		how = append(how, "its mount namespace has it at "+shorten(safe(h.Mountpoint), maxPath))
	}
	who := fmt.Sprintf("process %d (%s)", h.PID, safe(h.Comm))
	switch {
	case h.Pod != "":
		who += " of pod " + safe(h.Namespace+"/"+h.Pod)
	case h.UID != "":
		who += " of pod " + safe(h.UID)
	}
	return who + ": " + strings.Join(how, ", ")
}
