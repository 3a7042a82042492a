package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nri-blkio/nri-blkio/internal/terminal"
	"github.com/nri-blkio/nri-blkio/plugin/nodereport"
)

// overview is what the reports of all nodes say.
type overview struct {
	Nodes    []nodeRow    `json:"nodes"`
	Problems []problemRow `json:"problems"` // those of nodes first
	LeftOut  int          `json:"leftOut"`  // problems for which the reports have no room
}

// nodeRow is one node. The numbers of a silent node are those that it reported last.
type nodeRow struct {
	Node     string    `json:"node"`
	Silent   bool      `json:"silent"`
	Reported time.Time `json:"reported"`
	Program  string    `json:"program"`
	Pods     int       `json:"pods"`
	InForce  int       `json:"inForce"`
	Problems int       `json:"problems"`
}

type problemRow struct {
	Node string `json:"node"`
	nodereport.Problem
}

// leases is what is read of the objects with the reports.
type leases struct {
	Items []struct {
		Metadata struct {
			Name        string
			Annotations map[string]string
		}
		Spec struct{ RenewTime time.Time }
	}
}

// overview shows the reports of all nodes, which it reads with one request.
func (a *app) overview(ctx context.Context, output string) error {
	if known := []string{"", "table", "wide", "json"}; !slices.Contains(known, output) {
		return usage("--output: unknown format %q (write table, wide or json)", output)
	}
	selector := url.QueryEscape(nodereport.NameLabel + "=" + nodereport.Name)
	data, err := a.get(ctx, "--raw=/apis/coordination.k8s.io/v1/namespaces/"+a.plugin+"/leases?labelSelector="+selector)
	if err != nil {
		return err
	}
	var list leases
	if err := json.Unmarshal(data, &list); err != nil {
		return fmt.Errorf("kubectl get: %w", err)
	}
	if len(list.Items) == 0 {
		return fmt.Errorf("no reports of nodes in namespace %s: the cluster part of nri-blkio does not run there (--plugin-namespace names another namespace)", a.plugin)
	}
	o := overviewOf(list, a.namespace, time.Now())
	var out bytes.Buffer
	if output == "json" {
		err = terminal.WriteJSON(&out, o)
	} else {
		o.write(&out, output == "wide")
	}
	if err != nil {
		return err
	}
	if _, err := a.stdout.Write(out.Bytes()); err != nil {
		return err
	}
	if len(o.Problems)+o.LeftOut > 0 {
		return &exitError{status: exitFindings}
	}
	return nil
}

// overviewOf reads the reports. With a namespace, the problems of other namespaces are left out.
func overviewOf(list leases, namespace string, now time.Time) *overview {
	o := &overview{Nodes: []nodeRow{}, Problems: []problemRow{}}
	for _, l := range list.Items {
		row := nodeRow{Node: strings.TrimPrefix(l.Metadata.Name, nodereport.NamePrefix), Reported: l.Spec.RenewTime.UTC()}
		r, err := nodereport.Decode([]byte(l.Metadata.Annotations[nodereport.Annotation]))
		var problems []nodereport.Problem
		if err == nil {
			row.Program, row.Pods, row.InForce, row.Problems = r.Program, r.Pods, r.InForce, len(r.Problems)+r.LeftOut
			problems = r.Problems
		} else {
			problems = []nodereport.Problem{{Reason: nodereport.Silent, Text: err.Error()}}
		}
		age := now.Sub(l.Spec.RenewTime)
		if row.Silent = age.Abs() > nodereport.MaxAge || err != nil; row.Silent && err == nil {
			// What it reported last may be over, or be a small part of what is wrong.
			problems = []nodereport.Problem{{Reason: nodereport.Silent, Text: "no report for " + age.Round(time.Second).String()}}
		} else if err == nil {
			o.LeftOut += r.LeftOut
		}
		for _, p := range problems {
			if namespace == "" || p.Namespace == "" || p.Namespace == namespace {
				o.Problems = append(o.Problems, problemRow{row.Node, p})
			}
		}
		o.Nodes = append(o.Nodes, row)
	}
	slices.SortFunc(o.Nodes, func(a, b nodeRow) int { return cmp.Compare(a.Node, b.Node) })
	slices.SortFunc(o.Problems, func(a, b problemRow) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Pod, b.Pod), cmp.Compare(a.Node, b.Node), a.Compare(b.Problem))
	})
	return o
}

// write writes the problems, and with wide the nodes as well.
func (o *overview) write(out *bytes.Buffer, wide bool) {
	if len(o.Problems) > 0 {
		table := terminal.NewTable(out, "NODE", "POD", "REASON", "TEXT")
		for _, p := range o.Problems {
			table.Row(p.Node, strings.Trim(p.Namespace+"/"+p.Pod, "/"), p.Reason, p.Text)
		}
		table.Flush()
		fmt.Fprintln(out)
	}
	if wide {
		table := terminal.NewTable(out, "NODE", "REPORTED", "VERSION", "PODS", "IN FORCE", "PROBLEMS")
		for _, n := range o.Nodes {
			table.Row(n.Node, n.Reported.Format(time.RFC3339), n.Program, strconv.Itoa(n.Pods), strconv.Itoa(n.InForce), strconv.Itoa(n.Problems))
		}
		table.Flush()
		fmt.Fprintln(out)
	}
	silent, pods, inForce := 0, 0, 0
	for _, n := range o.Nodes {
		if n.Silent {
			silent++
			continue
		}
		pods, inForce = pods+n.Pods, inForce+n.InForce
	}
	fmt.Fprintf(out, "%d nodes, %d of them silent; %d pods on the others, %d without a problem\n", len(o.Nodes), silent, pods, inForce)
	if o.LeftOut > 0 {
		fmt.Fprintf(out, "%d more problems, for which the reports have no room: kubectl blkio status --node NODE\n", o.LeftOut)
	}
}
