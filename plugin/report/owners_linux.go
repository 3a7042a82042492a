package report

import (
	"bytes"
	"fmt"

	"github.com/nri-blkio/nri-blkio/internal/terminal"
	"github.com/nri-blkio/nri-blkio/plugin/why"
)

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
