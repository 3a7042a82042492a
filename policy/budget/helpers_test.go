package budget

import (
	"os"
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

func on(disks ...blkio.Disk) blkio.Backing { return blkio.Backing{FSType: "ext4", Disks: disks} }

func parsed(t testing.TB, text string) *policy.Policy {
	t.Helper()
	p, err := policy.ParseFile([]byte("apiVersion: blkio.noderesource.dev/v1alpha1\nkind: NodePolicy\n" + text))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// budgeted returns the policy that the tests of package policy have for budgets.
func budgeted(t testing.TB) *policy.Policy {
	t.Helper()
	text, err := os.ReadFile("../testdata/budgeted.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return parsed(t, string(text))
}

// checkLine fails on an error text that could not stand in an Event.
func checkLine(t *testing.T, line string) {
	t.Helper()
	if len(line) > 400 || strings.ContainsFunc(line, func(r rune) bool { return r < ' ' || r > '~' }) {
		t.Errorf("%d bytes: %q", len(line), line)
	}
}
