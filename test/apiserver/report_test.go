package apiserver

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/nri-blkio/nri-blkio/blkio/hostfs"
	"github.com/nri-blkio/nri-blkio/plugin/nodereport"
)

// lease is a Lease as a token may try to write it.
type lease struct{ namespace, name, metadata string }

func (l lease) manifest() string { return l.heldBy("x") }

func (l lease) heldBy(holder string) string {
	return fmt.Sprintf("{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {namespace: %s, name: %s%s}, spec: {holderIdentity: %s}}", l.namespace, l.name, l.metadata, holder)
}

// report writes what the limits part reports about the node.
func (p *part) report(problems ...nodereport.Problem) {
	p.Helper()
	data := nodereport.Encode("v1", 3, problems)
	if err := hostfs.ReplaceOffered(filepath.Join(p.notes, nodereport.FileName), data); err != nil {
		p.Fatal(err)
	}
}

// overview verifies what kubectl blkio says of the reports, as kubectl runs it.
func (p *part) overview(status int, texts ...string) {
	p.Helper()
	file, err := plugin()
	if err != nil {
		p.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	cmd := exec.CommandContext(ctx, server.kubectl, "blkio", "status", "-A", "--kubeconfig", server.kubeconfig)
	cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(file)+":"+filepath.Dir(server.kubectl)+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	for _, text := range texts {
		if !strings.Contains(string(out), text) || cmd.ProcessState.ExitCode() != status {
			p.Errorf("kubectl blkio: %v: %.2000s\nwant %s", err, out, text)
		}
	}
}

// TestClusterReport verifies that the part writes the Lease of its node in a real API server, with the largest report, and that it
// follows the limits part.
func TestClusterReport(t *testing.T) {
	p := newPart(t, "worker-8")
	var problems []nodereport.Problem
	for i := range 3 * nodereport.MaxProblems {
		problems = append(problems, nodereport.Problem{Namespace: "prod", Pod: fmt.Sprintf("db-%d", i), Reason: "BlkioRefused", Text: strings.Repeat(`"<\x1b`, 200)})
	}
	p.report(problems...)
	p.kubectl("", "delete", "leases", "-n", partNamespace, "-l", "app.kubernetes.io/name="+nodereport.Name) // of the nodes of other tests
	p.start()
	has := func(when string, check func(*nodereport.Report) bool) {
		t.Helper()
		p.eventually(when, func() error {
			out, err := kubectl("", "get", "leases", "-n", partNamespace, "-l", "app.kubernetes.io/name="+nodereport.Name, "-o", "json")
			var list coordinationv1.LeaseList
			if err == nil {
				err = json.Unmarshal([]byte(out), &list)
			}
			if err != nil {
				return fmt.Errorf("%w: %s", err, out)
			}
			for _, l := range list.Items {
				if l.Name != "nri-blkio-worker-8" {
					continue
				}
				r, err := nodereport.Decode([]byte(l.Annotations[nodereport.Annotation]))
				if err != nil {
					return err
				}
				if age := time.Since(l.Spec.RenewTime.Time); !check(r) || age > time.Minute || len(l.OwnerReferences) != 1 {
					return fmt.Errorf("%d problems, %d left out, %v old", len(r.Problems), r.LeftOut, age)
				}
				return nil
			}
			return fmt.Errorf("no Lease among %d", len(list.Items))
		})
	}
	has("the largest report", func(r *nodereport.Report) bool { return len(r.Problems) > 30 && r.LeftOut > 100 })
	p.overview(1, "worker-8  prod/db-0", "further problems, for which the reports have no room")
	p.report()
	has("a changed report", func(r *nodereport.Report) bool { return len(r.Problems) == 0 && r.Pods == 3 && r.Program == "v1" })
	p.overview(0, "nodes: 1, silent: 0; pods on the others: 3, without a problem: 3")
}

// allLeases gives the part all rights to Leases in the namespaces, until the test ends.
func (p *part) allLeases(namespaces ...string) {
	p.Helper()
	for _, ns := range namespaces {
		p.kubectl(fmt.Sprintf(`{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: leases, namespace: %[1]s}, rules: [{apiGroups: [coordination.k8s.io], resources: [leases], verbs: ["*"]}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: leases, namespace: %[1]s}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: leases},
subjects: [{kind: ServiceAccount, name: %s, namespace: %s}]}`, ns, partAccount, partNamespace), "apply", "-f", "-")
	}
	p.Cleanup(func() { p.kubectl("", "delete", "rolebinding", "-n", partNamespace, "leases") })
}

// TestClusterReportRights verifies that the token of a node writes only the Lease of that node, with a report in it and nothing
// else, even where it has more rights than those of the manifest.
func TestClusterReportRights(t *testing.T) {
	p := newPart(t, "worker-9")
	p.namespace("leases", "")
	p.allLeases(partNamespace, "leases")
	const own = "nri-blkio-worker-9"
	report := func(size int) string {
		return fmt.Sprintf(", annotations: {%s: '%s'}", nodereport.Annotation, strings.Repeat("x", size))
	}
	owner := func(kind, name string) string {
		return fmt.Sprintf(", ownerReferences: [{apiVersion: v1, kind: %s, name: %s, uid: u}]", kind, name)
	}
	bound := p.as(readFile(t, p.token, "token"))
	p.eventually("decisions of the API server", func() error { // a policy takes effect some time after it was created
		for _, tt := range []struct {
			lease
			denied string // "" if it is admitted
		}{
			{lease{partNamespace, own, report(nodereport.MaxSize) + owner("Node", "worker-9")}, ""},
			{lease{partNamespace, "nri-blkio-worker-1", ""}, "the Lease must be that of the node of the token, nri-blkio-worker-9"},
			{lease{partNamespace, "worker-9", ""}, "the Lease must be that of the node"},
			{lease{"leases", own, ""}, "the Lease must be that of the node"},
			{lease{partNamespace, own, report(nodereport.MaxSize + 1)}, "the report has at most 32768 characters"},
			{lease{partNamespace, own, ", annotations: {a: b}"}, "there is no other annotation"},
			{lease{partNamespace, own, ", finalizers: [a.example/b]"}, "has no finalizers"},
			{lease{partNamespace, own, owner("Node", "worker-1")}, "no owner but the node"},
			{lease{partNamespace, own, owner("Pod", "worker-9")}, "no owner but the node"},
		} {
			out, err := bound(tt.manifest(), "create", "--dry-run=server", "-f", "-")
			if (err == nil) != (tt.denied == "") || !strings.Contains(out, tt.denied) {
				return fmt.Errorf("%.200s: %w: %.500s, want %q", tt.manifest(), err, out, tt.denied)
			}
		}
		return nil
	})
	p.rejectsLarge(bound, own)
	p.kubectl(lease{partNamespace, "nri-blkio-worker-2", ""}.manifest(), "apply", "-f", "-")
	if out, err := bound(lease{partNamespace, own, ""}.manifest(), "create", "-f", "-"); err != nil {
		t.Errorf("its own: %v: %s", err, out)
	}
	for _, tt := range []struct{ verb, name, denied string }{
		{"patch", "nri-blkio-worker-2", "the Lease must be that of the node"},
		{"delete", "nri-blkio-worker-2", "deletes no Leases"},
		{"delete", own, "deletes no Leases"},
		{"patch", own, ""},
	} {
		args := []string{tt.verb, "lease", "-n", partNamespace, tt.name}
		if tt.verb == "patch" {
			args = append(args, "--type=merge", "-p", `{"spec": {"holderIdentity": "y"}}`)
		}
		if out, err := bound("", args...); (err == nil) != (tt.denied == "") || !strings.Contains(out, tt.denied) {
			t.Errorf("%s %s: %v: %s, want %q", tt.verb, tt.name, err, out, tt.denied)
		}
	}
	free := p.as(p.kubectl("", "create", "token", partAccount, "-n", partNamespace))
	if out, err := free(lease{partNamespace, own, ""}.manifest(), "create", "--dry-run=server", "-f", "-"); err == nil || !strings.Contains(out, "the token names no node") {
		t.Errorf("a token that is not bound: %v: %s", err, out)
	}
}

// rejectsLarge verifies that the Lease of a node has a maximum size, whatever field is large, and that the largest one fits.
func (p *part) rejectsLarge(bound func(input string, args ...string) (string, error), name string) {
	p.Helper()
	const uid = "01234567-89ab-cdef-0123-456789abcdef"
	owner := func(uid, more string) string {
		return fmt.Sprintf("{apiVersion: v1, kind: Node, name: %s, uid: %q%s}", p.node, uid, more)
	}
	label := "app.kubernetes.io/name: " + strings.Repeat("x", 63)
	many := func(n int, format string) string {
		var out []string
		for i := range n {
			out = append(out, fmt.Sprintf(format, i))
		}
		return strings.Join(out, ", ")
	}
	const entry = `{manager: m%d, operation: Apply, apiVersion: coordination.k8s.io/v1, fieldsType: FieldsV1, fieldsV1: {"f:spec": {"f:a": {}}}}`
	deep := func(fields string) string {
		return `, managedFields: [{manager: m, operation: Apply, apiVersion: coordination.k8s.io/v1, fieldsType: FieldsV1, fieldsV1: ` + fields + `}]`
	}
	largest := fmt.Sprintf(", labels: {%s}, ownerReferences: [%s]", label, owner(uid, ", controller: true, blockOwnerDeletion: true"))
	for _, tt := range []struct{ metadata, holder, denied string }{
		{largest, strings.Repeat("x", 253), ""},
		{", labels: {" + label + ", a: b}", "x", "has no label but app.kubernetes.io/name"},
		{", labels: {" + many(2000, "a%d: b") + "}", "x", "has no label but app.kubernetes.io/name"},
		{", ownerReferences: [" + owner(uid, "") + ", " + owner(uid[1:], "") + "]", "x", "no owner but the node"},
		{", ownerReferences: [" + owner(uid+"x", "") + "]", "x", "no owner but the node"},
		{", ownerReferences: [" + strings.Replace(owner(uid, ""), "v1", strings.Repeat("x", 300)+"/v1", 1) + "]", "x", "no owner but the node"},
		{"", strings.Repeat("x", 254), "holderIdentity has at most 253 characters"},
		{", managedFields: [" + many(40, entry) + "]", "x", "managedFields"},
		{deep(`{"f:` + strings.Repeat("x", 300) + `": {}}`), "x", "managedFields"},
		{deep(`{"f:metadata": {"f:annotations": {` + many(100, `"f:a%d": {}`) + "}}}"), "x", "managedFields"},
		{deep(`{"f:a": {"f:b": {"f:c": {"f:d": {"f:` + strings.Repeat("x", 300) + `": {}}}}}}`), "x", "managedFields"},
	} {
		text := lease{partNamespace, name, tt.metadata}.heldBy(tt.holder)
		out, err := bound(text, "create", "--dry-run=server", "-f", "-")
		if (err == nil) != (tt.denied == "") || !strings.Contains(out, tt.denied) {
			p.Errorf("%.300s: %v: %.500s, want %q", text, err, out, tt.denied)
		}
	}
}
