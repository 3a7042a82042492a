package budget

import (
	"strings"
	"testing"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy"
)

var (
	sda = blkio.Disk{Dev: blkio.Dev{Major: 8, Minor: 0}, Name: "sda"}
	sdb = blkio.Disk{Dev: blkio.Dev{Major: 8, Minor: 16}, Name: "sdb"}
	sdc = blkio.Disk{Dev: blkio.Dev{Major: 8, Minor: 32}, Name: "sdc"}
)

const (
	keyDB    = "limits.blkio.noderesource.dev/container.db"
	keyEach  = "limits.blkio.noderesource.dev/containers"
	keyTotal = "limits.blkio.noderesource.dev/pod-total"
)

const budgeted = `
classes:
  tenant: {limits: ["* wbps=20Mi riops=100"]}
rules:
- {name: classed, match: {namespaces: [tenant-classed]}, class: tenant}
- {name: closed, match: {namespaces: [tenant-closed]}, class: tenant, annotations: reject}
- {name: bounded, match: {namespaces: [tenant-bounded]}, bounds: {min: ["* wbps=30Mi"]}}
budgets:
- {namespaces: [tenant-free], limits: ["* wbps=max"]}
- {namespaces: ["tenant-*", other], limits: ["* wbps=200Mi rbps=max riops=1k"]}
- {namespaces: [tenant-late, late], limits: ["* riops=50"]}
`

func on(disks ...blkio.Disk) blkio.Backing { return blkio.Backing{FSType: "ext4", Disks: disks} }

func parsed(t testing.TB, text string) *policy.Policy {
	t.Helper()
	p, err := policy.ParseFile([]byte("apiVersion: blkio.noderesource.dev/v1alpha1\nkind: NodePolicy\n" + text))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// checkLine fails on an error text that could not stand in an Event.
func checkLine(t *testing.T, line string) {
	t.Helper()
	if len(line) > 400 || strings.ContainsFunc(line, func(r rune) bool { return r < ' ' || r > '~' }) {
		t.Errorf("%d bytes: %q", len(line), line)
	}
}
