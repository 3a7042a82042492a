package weights

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/health"
	"github.com/nri-blkio/nri-blkio/plugin/iocost"
	"github.com/nri-blkio/nri-blkio/plugin/shares"
)

// many returns the containers of a namespace, each with a weight on two disks.
func many(namespace string, n int, disks ...blkio.Disk) (out []Weighted) {
	for i := range n {
		name := fmt.Sprint(i)
		out = append(out, Weighted{
			Namespace: namespace, Pod: name, Container: name, Cgroup: namespace + "/" + name, Disks: disks, Weights: blkio.Weights{Default: 300},
		})
	}
	return out
}

// TestReportWithoutDisk verifies that a weight that applies to no disk has one row, with the reason. A weight
// with unknown disks has none.
func TestReportWithoutDisk(t *testing.T) {
	d := Demand{Complete: true, Weighted: many("prod", 2)}
	d.Weighted[0].NoDisk = "it uses no local disk"
	want := []health.Share{{Namespace: "prod", Pod: "0", Container: "0", Weight: 300, Reason: "it uses no local disk"}}
	for name, r := range map[string]*health.Weights{"report": report(&d, nil, &divided{}), "io.cost cannot be read": reportUnread(&d)} {
		if diff := cmp.Diff(want, r.Shares); diff != "" || r.SharesLeftOut != 0 {
			t.Errorf("%s: %d left out, %s", name, r.SharesLeftOut, diff)
		}
	}
}

// TestReportIsBounded verifies that a report has at most maxShares rows, those with a problem first. A tenant
// with many containers hides neither the problems nor all rows of another one.
func TestReportIsBounded(t *testing.T) {
	working := []iocost.State{{Setup: iocost.Setup{Disk: vda, Enabled: true}, Works: true}}
	byDisk := map[blkio.Dev][]shares.Share{}
	for _, namespace := range []string{"many", "few"} {
		for i := range maxShares {
			byDisk[vda.Dev] = append(byDisk[vda.Dev], shares.Share{Path: fmt.Sprintf("%s/%d", namespace, i), Fraction: 0.5})
		}
	}
	count := func(d Demand) (rows map[string]int, r *health.Weights) {
		r = report(&d, working, &divided{Result: shares.Result{Shares: byDisk}})
		rows = map[string]int{}
		for i, s := range r.Shares {
			name := s.Namespace
			if kind(&s) == 0 {
				name += " with a problem"
			}
			rows[name]++
			if i > 0 && kind(&r.Shares[i-1]) > kind(&s) {
				t.Fatalf("row %d has a problem, and the row before it has none", i)
			}
		}
		return rows, r
	}
	for _, tt := range []struct {
		name   string
		demand []Weighted
		want   map[string]int
		out    int
	}{
		{name: "all", demand: many("many", maxShares, vda), want: map[string]int{"many": maxShares}},
		{
			name: "one tenant has too many", demand: append(many("many", maxShares, vda), many("few", 10, vda)...),
			want: map[string]int{"many": maxShares - 10, "few": 10}, out: 10,
		},
		{
			name: "problems first", demand: append(many("many", maxShares, vda), many("few", 10, vdb)...), // vdb is not there
			want: map[string]int{"many": maxShares - 10, "few with a problem": 10}, out: 10,
		},
		{
			name: "one tenant has too many problems", demand: append(many("many", maxShares, vda, vdb), many("few", 10, vdb)...),
			want: map[string]int{"many with a problem": maxShares - 10, "few with a problem": 10}, out: maxShares + 10,
		},
	} {
		got, r := count(Demand{Weighted: tt.demand, Complete: true})
		slices.Reverse(tt.demand)
		if _, again := count(Demand{Weighted: tt.demand, Complete: true}); !slices.Equal(again.Shares, r.Shares) {
			t.Errorf("%s: the rows depend on the order of the demand", tt.name)
		}
		if diff := cmp.Diff(tt.want, got); diff != "" || r.SharesLeftOut != tt.out {
			t.Errorf("%s: %d left out, want %d; rows -want +got:\n%s", tt.name, r.SharesLeftOut, tt.out, diff)
		}
	}
}
