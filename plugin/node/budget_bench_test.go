package node

import (
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// BenchmarkBudget measures what a budget costs where pods of two containers share it, in one namespace and in one of its own for each
// pod: the check of a container under the lock of the state, the creation of a container with it, a report of all sums, and a
// scrape of the metrics with it.
func BenchmarkBudget(b *testing.B) {
	for _, tt := range []struct{ pods, namespaces int }{{250, 1}, {1000, 1}, {250, 250}} {
		n, last := newLargeBudget(b, tt.pods, tt.namespaces)
		sb := tenant("0", "* wbps=20Mi; /data wbps=50Mi")
		sb.Namespace = "tenant-0"
		created := member(sb, "created", bind("/mnt/data/x", "/data"))
		for _, m := range []struct {
			name string
			do   func() error
		}{
			{"check", func() error {
				if excess := excess(n.Node, last); excess != nil {
					return excess
				}
				return nil
			}},
			{"create", func() error {
				_, err := (&session{n.Node, noDeadline}).CreateContainer(b.Context(), sb, created)
				n.Removed(sb.ID, created.ID)
				return err
			}},
			{"report", func() error {
				if got := len(n.Budgets()); got != 2*tt.namespaces {
					return fmt.Errorf("%d sums", got)
				}
				return nil
			}},
			{"scrape", func() error {
				n.Budgets()
				n.Collect(make(chan prometheus.Metric, 1000))
				return nil
			}},
		} {
			b.Run(fmt.Sprintf("%s/pods=%d/namespaces=%d", m.name, tt.pods, tt.namespaces), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if err := m.do(); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// newLargeBudget returns a node with pods that share a budget with room for all of them, and the last of their containers.
func newLargeBudget(b *testing.B, pods, namespaces int) (_ *budgetNode, last *snapshot) {
	n := newBudgetNode(b, strings.Replace(tenantBudget, "200Mi", "200Gi", 1))
	for i := range pods {
		sb := tenant(fmt.Sprint(i), "* wbps=20Mi; /data wbps=50Mi")
		sb.Namespace = fmt.Sprint("tenant-", i%namespaces)
		for _, name := range []string{"db", "sidecar"} {
			c := member(sb, name, bind("/mnt/data/x", "/data"))
			if err := n.createOf(sb, c); err != nil {
				b.Fatal(err)
			}
			now := n.peek().pods[sb.ID].container(c.ID).snapshot
			last = &now
		}
	}
	return n, last
}

// excess asks the budget of its namespace about a container.
func excess(n *Node, c *snapshot) *annotation.Error {
	s := n.state.Lock()
	defer n.state.Unlock()
	return s.excess(c.pod.group.in(s), []*snapshot{c}, c.pod.in(s).total, nil)
}
