package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nri-blkio/nri-blkio/internal/terminal"
	"github.com/nri-blkio/nri-blkio/plugin/nodereport"
)

// overview is what the reports of all nodes say.
type overview struct {
	Nodes    []nodeRow    `json:"nodes"`
	Problems []problemRow `json:"problems"` // those of nodes first
}

// nodeRow is one node. The numbers of a silent node are those that it reported last.
type nodeRow struct {
	Node     string    `json:"node"`
	Silent   bool      `json:"silent"`
	Reported time.Time `json:"reported"`
	Program  string    `json:"program"`
	Pods     int       `json:"pods"`
	InForce  int       `json:"inForce"`
	LeftOut  int       `json:"leftOut"` // problems for which the report has no room
}

type problemRow struct {
	Node string `json:"node"`
	nodereport.Problem
}

// lease is what is read of the object with a report.
type lease struct {
	Metadata struct {
		Name        string
		Annotations map[string]string
	}
	Spec struct{ RenewTime string } // the API server gives years beyond 9999 too, which time.Time does not take
}

// overview shows the reports of all nodes, which it reads with one request.
func (a *app) overview(ctx context.Context, args []string) error {
	isJSON := a.output == "json"
	if len(args) > 0 || a.node != "" || !isJSON && a.output != "" && a.output != "table" {
		return usage("status -A takes no pod and no flags of a node, and -o is table or json")
	}
	data, err := a.get(ctx, "--raw=/apis/coordination.k8s.io/v1/namespaces/"+a.plugin+"/leases?labelSelector=app.kubernetes.io%2Fname%3D"+nodereport.Name)
	if err != nil {
		return err
	}
	var list struct{ Items []lease }
	if err := json.Unmarshal(data, &list); err != nil {
		return fmt.Errorf("read the reports: %w", err)
	}
	if len(list.Items) == 0 {
		return fmt.Errorf("no reports of nodes in namespace %s: the cluster part of nri-blkio does not run there (--plugin-namespace names another one)", a.plugin)
	}
	o := overviewOf(list.Items, a.namespace, time.Now())
	var out bytes.Buffer
	if isJSON {
		err = terminal.WriteJSON(&out, o)
	} else {
		o.write(&out)
	}
	if len(o.Problems) > 0 {
		err = errors.Join(err, &exitError{status: exitFindings})
	}
	_, writeErr := a.stdout.Write(out.Bytes())
	return cmp.Or(writeErr, err)
}

// overviewOf reads the reports. With a namespace, the problems of pods of other namespaces are left out.
func overviewOf(items []lease, namespace string, now time.Time) *overview {
	o := &overview{Nodes: []nodeRow{}, Problems: []problemRow{}}
	for _, l := range items {
		renewed, _ := time.Parse(time.RFC3339, l.Spec.RenewTime) // otherwise it is silent
		row := nodeRow{Node: strings.TrimPrefix(l.Metadata.Name, nodereport.NamePrefix), Reported: renewed.UTC()}
		r, err := nodereport.Decode([]byte(l.Metadata.Annotations[nodereport.Annotation]))
		if err == nil {
			row.Program, row.Pods, row.InForce, row.LeftOut = r.Program, r.Pods, r.InForce, r.LeftOut
		}
		// The problems that a silent node had may be over, or a small part of what is wrong.
		if age := now.Sub(renewed); err == nil && age.Abs() > nodereport.MaxAge {
			err = fmt.Errorf("the last report is %v old", age.Round(time.Second))
		}
		if row.Silent = err != nil; row.Silent {
			r = &nodereport.Report{Problems: []nodereport.Problem{{Reason: nodereport.Silent, Text: err.Error()}}}
		}
		for _, p := range r.Problems {
			if namespace == "" || p.Namespace == "" || p.Namespace == namespace {
				o.Problems = append(o.Problems, problemRow{row.Node, p})
			}
		}
		o.Nodes = append(o.Nodes, row)
	}
	slices.SortFunc(o.Nodes, func(a, b nodeRow) int { return cmp.Compare(a.Node, b.Node) })
	slices.SortFunc(o.Problems, func(a, b problemRow) int { return cmp.Or(a.Compare(b.Problem), cmp.Compare(a.Node, b.Node)) })
	return o
}

func (o *overview) write(out *bytes.Buffer) {
	if len(o.Problems) > 0 {
		table := terminal.NewTable(out, "NODE", "POD", "REASON", "TEXT")
		for _, p := range o.Problems {
			table.Row(p.Node, strings.Trim(p.Namespace+"/"+p.Pod, "/"), p.Reason, p.Text)
		}
		table.Flush()
		fmt.Fprintln(out)
	}
	var silent, pods, inForce, leftOut int
	for _, n := range o.Nodes {
		if n.Silent {
			silent++
			continue
		}
		pods, inForce, leftOut = pods+n.Pods, inForce+n.InForce, leftOut+n.LeftOut
	}
	fmt.Fprintf(out, "nodes: %d, silent: %d; pods on the others: %d, without a problem: %d\n", len(o.Nodes), silent, pods, inForce)
	if leftOut > 0 {
		fmt.Fprintf(out, "further problems, for which the reports have no room: %d (kubectl blkio status --node NODE)\n", leftOut)
	}
}
