package report

import (
	"bytes"
	"testing"

	"github.com/nri-blkio/nri-blkio/plugin/why"
)

// TestWriteWhy verifies that text of tenants is escaped, and that an advice that two causes share is written once.
func TestWriteWhy(t *testing.T) {
	a := why.Answer{
		Text: "a/b\x1b[2J: 0.97 threads wait",
		Causes: []why.Cause{
			{Cause: why.OwnLimit, Part: 0.9, Disk: "vdb", Text: "its own limit", Do: "raise it"},
			{Cause: why.OwnLimit, Part: 0.1, Disk: "vdc", Text: "its own limit on vdc", Do: "raise it"},
		},
		Disks:   []why.Disk{{Disk: "vdb", WriteBytes: 1 << 20, WriteOps: 16, Limit: &why.Limit{Key: "wbps", Value: "1Mi", Used: 0.98}}},
		Unknown: []string{"queue: no hook"},
	}
	var out bytes.Buffer
	WriteWhy(&out, &a)
	const want = `a/b\x1b[2J: 0.97 threads wait

PART  CAUSE      DISK  WHAT
90 %  own-limit  vdb   its own limit
10 %  own-limit  vdc   its own limit on vdc
do (own-limit): raise it

DISK  READ/S  WRITE/S  READS/S  WRITES/S  LIMIT     USED
vdb   0       1M       0        16        wbps=1Mi  98 %
unknown: queue: no hook
`
	if got := out.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
