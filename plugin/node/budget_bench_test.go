package node

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// BenchmarkBudget measures the time that the budget of a namespace adds to the creation of a container (check), under the lock of the
// state, and what a report of all sums takes (report): 250 pods of two containers, in one namespace and in one of its own for
// each pod.
func BenchmarkBudget(b *testing.B) {
	for _, namespaces := range []int{1, benchPods} {
		n := newBudgetNode(b, strings.Replace(tenantBudget, "200Mi", "200Gi", 1))
		var last *snapshot
		for i := range benchPods {
			sb := tenant(fmt.Sprint(i), "* wbps=20Mi; /data wbps=50Mi")
			sb.Namespace = fmt.Sprint("tenant-", i%namespaces)
			for _, name := range []string{"db", "sidecar"} {
				c := member(sb, name, bind("/mnt/data/x", "/data"))
				if err := n.createOf(sb, c); err != nil {
					b.Fatal(err)
				}
				now := n.peek().pods[sb.ID].containers[c.ID].snapshot
				last = &now
			}
		}
		b.Run(fmt.Sprintf("check/namespaces=%d", namespaces), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := excess(n.Node, last); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("report/namespaces=%d", namespaces), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if got := n.Budgets(); len(got) != 2*namespaces {
					b.Fatal(got)
				}
			}
		})
	}
}

// excess asks the budget of its namespace about a container.
func excess(n *Node, c *snapshot) *annotation.Error {
	s := n.pods.state.Lock()
	defer n.pods.state.Unlock()
	return s.excess([]*snapshot{c}, nil)
}
