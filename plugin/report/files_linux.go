package report

import (
	"bytes"
	"cmp"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/nri-blkio/nri-blkio/internal/terminal"
	"github.com/nri-blkio/nri-blkio/plugin/repair"
	"github.com/nri-blkio/nri-blkio/plugin/why"
)

// writeFiles writes the report of the writeback part, nil if it does not run.
func writeFiles(out *bytes.Buffer, r *repair.Report) {
	if r == nil {
		terminal.Notes(out, "note", "writes to files are not observed: the writeback part does not run")
		return
	}
	if r.Mode != repair.ModeUnavailable {
		fmt.Fprintf(out, "\nFiles are watched on: %s\n", cmp.Or(watchedText(r.Filesystems), "no filesystem"))
	}
	switch r.Mode {
	case repair.ModeUnavailable, repair.ModeGated:
		terminal.Notes(out, "note", "files are not moved to their writers: "+r.Reason)
	case repair.ModeObserve:
		terminal.Notes(out, "note", "files are not moved to their writers (mode observe, or writeback.repair is off)")
	}
	if r.Mode == repair.ModeUnavailable || len(r.Files) == 0 {
		return
	}
	t := terminal.NewTable(out, "FILE", "OWNER", "WRITERS", "MISPLACED", "STATE", "SINCE")
	for i := range r.Files {
		f := &r.Files[i]
		t.Row(fileName(f), f.Owner.String(), writersText(f.Writers), terminal.Bytes(f.Misplaced), withReason(string(f.State), f.Failure), timeText(f.Since))
	}
	if r.More > 0 {
		t.Row(fmt.Sprintf("and %d more", r.More))
	}
	t.Flush()
}

func watchedText(filesystems []repair.Filesystem) string {
	var out []string
	for _, fs := range filesystems {
		name := terminal.Escape(fs.Mountpoint)
		if fs.Hangs {
			name += " (does not answer)"
		}
		out = append(out, name)
	}
	return strings.Join(out, ", ")
}

// fileName returns the path, or the inode's number on its filesystem.
func fileName(f *repair.File) string {
	if f.Path != "" {
		return f.Path
	}
	name := fmt.Sprintf("%s inode %d", filepath.Clean(f.Mountpoint), f.Inode)
	if f.Subvolume != 0 {
		name += fmt.Sprintf(" of subvolume %d", f.Subvolume)
	}
	return name
}

func writersText(writers []repair.Writer) string {
	var out []string
	for _, w := range writers {
		out = append(out, fmt.Sprintf("%s %.0f%%", w.NamedCgroup, 100*w.Share))
	}
	return strings.Join(out, ", ")
}

// WriteOwners writes a row for each file.
func WriteOwners(out *bytes.Buffer, rows []why.FileOwner) {
	if len(rows) == 0 {
		return
	}
	t := terminal.NewTable(out, "FILE", "OWNER", "CGROUP", "FOREIGN")
	for i := range rows {
		t.Row(rows[i].Path, ownerText(&rows[i]), rows[i].Cgroup, fmt.Sprint(rows[i].Foreign))
	}
	t.Flush()
}

func ownerText(r *why.FileOwner) string {
	name := ContainerName(r.Namespace, r.Pod, r.Container)
	switch {
	case r.State == why.OwnerLive:
		return name
	case name == "":
		return r.State
	}
	return name + " (" + r.State + ")"
}
