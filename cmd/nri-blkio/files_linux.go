package main

import (
	"cmp"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/nri-blkio/nri-blkio/plugin/repair"
)

// printFiles writes the section of status's table.
func (a *app) printFiles(r *repair.Report) error {
	switch {
	case r == nil:
		notes(a.stdout, "note", []string{"writes to files are not observed: the writeback part does not run"})
		return nil
	case r.Mode == repair.ModeUnavailable:
		notes(a.stdout, "note", []string{"files are not moved to their writers: " + r.Reason})
		return nil
	}
	var where []string
	for _, fs := range r.Filesystems {
		name := safe(fs.Mountpoint)
		if fs.Hangs {
			name += " (does not answer)"
		}
		where = append(where, name)
	}
	fmt.Fprintf(a.stdout, "\nFiles are watched on: %s\n", cmp.Or(strings.Join(where, ", "), "no filesystem"))
	switch {
	case r.Mode == repair.ModeGated:
		notes(a.stdout, "note", []string{"files are not moved to their writers: " + r.Reason})
	case r.Mode == repair.ModeObserve:
		notes(a.stdout, "note", []string{"files are not moved to their writers (mode observe, or writeback.repair is off)"})
	case r.Reason != "":
		notes(a.stdout, "note", []string{r.Reason})
	}
	if len(r.Files) == 0 {
		return nil
	}
	t := newTable(a.stdout, "FILE", "OWNER", "WRITERS", "MISPLACED", "STATE", "SINCE")
	for i := range r.Files {
		f := &r.Files[i]
		t.row(fileName(f), f.Owner.String(), writersText(f.Writers), formatBytes(f.Misplaced), fileState(f), timeText(f.Since))
	}
	if r.More > 0 {
		t.row(fmt.Sprintf("and %d more", r.More))
	}
	return t.flush()
}

// fileName is the path, or the inode's number on its filesystem.
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

func fileState(f *repair.File) string {
	if f.Failure != "" {
		return string(f.State) + ": " + f.Failure
	}
	return string(f.State)
}

func timeText(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}
