package report

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/plugin/clear"
	"github.com/nri-blkio/nri-blkio/plugin/record"
)

// TestClearing verifies the lines of a step in each form.
func TestClearing(t *testing.T) {
	for _, tt := range []struct {
		name  string
		steps Clearing
		want  string
	}{
		{name: "each step", want: "prod/db-0: write io.max\n\"prod/\\x1b c\": mark\nprod/db-0 log: mark\ndisable io.cost\\x1b\n"},
		{
			name: "dry run", steps: Clearing{DryRun: true},
			want: "prod/db-0: would write io.max\n\"prod/\\x1b c\": would mark\nprod/db-0 log: would mark\nwould disable io.cost\\x1b\n",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var out bytes.Buffer
			tt.steps.Out = &out
			var to clear.Reporter = &tt.steps
			to.Cgroup(&record.Record{Namespace: "prod", Pod: "db-0"}, []string{"write io.max"})
			to.Cgroup(&record.Record{Namespace: "prod", Pod: "\x1b", Container: "c"}, []string{"mark"})
			to.Cgroup(&record.Record{Namespace: "prod", Pod: "db-0", Container: "log"}, []string{"mark"})
			to.Cgroup(&record.Record{Namespace: "prod", Pod: "unchanged"}, nil)
			to.Node([]string{"disable io.cost\x1b"})
			if d := cmp.Diff(tt.want, out.String()); d != "" {
				t.Errorf("-want +got:\n%s", d)
			}
		})
	}
}
