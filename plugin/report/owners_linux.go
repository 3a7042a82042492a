package report

import (
	"bytes"
	"fmt"

	"github.com/nri-blkio/nri-blkio/internal/terminal"
	"github.com/nri-blkio/nri-blkio/plugin/inspect"
)

// WriteOwners writes a row for each file.
func WriteOwners(out *bytes.Buffer, rows []inspect.FileOwner) {
	if len(rows) == 0 {
		return
	}
	t := terminal.NewTable(out, "FILE", "OWNER", "CGROUP", "FOREIGN")
	for i := range rows {
		t.Row(rows[i].Path, ownerText(&rows[i]), rows[i].Cgroup, fmt.Sprint(rows[i].Foreign))
	}
	t.Flush()
}

func ownerText(r *inspect.FileOwner) string {
	name := ContainerName(r.Namespace, r.Pod, r.Container)
	switch {
	case r.State == inspect.OwnerLive:
		return name
	case name == "":
		return r.State
	}
	return name + " (" + r.State + ")"
}
