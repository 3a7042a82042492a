package node

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

func BenchmarkBudgetNamespace(b *testing.B) {
	for _, pods := range []int{250, 1000} {
		n := newBudgetNode(b, strings.Replace(tenantBudget, "200Mi", "200Gi", 1))
		var last *snapshot
		for i := range pods {
			sb := tenant(fmt.Sprint(i), "* wbps=20Mi; /data wbps=50Mi")
			for _, name := range []string{"db", "sidecar"} {
				c := member(sb, name, bind("/mnt/data/x", "/data"))
				if err := n.createOf(sb, c); err != nil {
					b.Fatal(err)
				}
				now := n.peek().pods[sb.ID].containers[c.ID].snapshot
				last = &now
			}
		}
		b.Run(fmt.Sprintf("check/pods=%d", pods), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := excess(n.Node, last); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("scrape/pods=%d", pods), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				out := make(chan prometheus.Metric, 1000)
				n.Budgets()
				n.Collect(out)
			}
		})
		b.Run(fmt.Sprintf("end/pods=%d", pods), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				n.pods.noteEnded("none")
			}
		})
		b.Run(fmt.Sprintf("create/pods=%d", pods), func(b *testing.B) {
			b.ReportAllocs()
			sb := tenant("0", "* wbps=20Mi; /data wbps=50Mi")
			for i := 0; b.Loop(); i++ {
				c := member(sb, fmt.Sprint("c", i), bind("/mnt/data/x", "/data"))
				if _, err := (&session{n.Node, time.Minute}).CreateContainer(b.Context(), sb, c); err != nil {
					b.Fatal(err)
				}
				n.Removed(sb.ID, c.ID)
			}
		})
	}
}
