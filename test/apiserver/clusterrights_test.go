package apiserver

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nri-blkio/nri-blkio/plugin/poddoc"
	"github.com/nri-blkio/nri-blkio/plugin/podfacts"
)

// TestClusterRights verifies that the part may read four kinds, write Events, write Leases of its namespace, and nothing else.
func TestClusterRights(t *testing.T) {
	newPart(t, "worker-4")
	const account = "--as=system:serviceaccount:" + partNamespace + ":" + partAccount
	for request, want := range map[string]string{
		"list pods": "yes", "watch pods": "yes", "list namespaces": "yes", "watch persistentvolumeclaims": "yes",
		"list volumeattributesclasses": "yes", "watch storageclasses": "no",
		"get pods": "no", "patch pods": "no", "list secrets": "no", "list configmaps": "no", "list nodes": "no", "list persistentvolumes": "no",
		"create events.events.k8s.io": "yes", "patch events.events.k8s.io": "yes", "create events": "no", "patch events": "no",
		"list events.events.k8s.io": "no", "update events.events.k8s.io": "no", "delete events.events.k8s.io": "no", "create pods/exec": "no", "create leases.coordination.k8s.io": "no", "patch leases.coordination.k8s.io": "no", "update persistentvolumeclaims": "no", "create serviceaccounts/token": "no",
	} {
		args := append([]string{"auth", "can-i", "--all-namespaces", account}, strings.Fields(request)...)
		out, _ := kubectl("", args...) // it fails with "no"
		if got := strings.TrimSpace(out); got != want && !strings.HasSuffix(got, "\n"+want) {
			t.Errorf("%s: %s, want %s", request, got, want)
		}
	}
	for verb, want := range map[string]string{"create": "yes", "patch": "yes", "get": "no", "list": "no", "update": "no", "delete": "no"} {
		out, _ := kubectl("", "auth", "can-i", "-n", partNamespace, account, verb, "leases.coordination.k8s.io")
		if got := strings.TrimSpace(out); got != want {
			t.Errorf("%s leases: %s, want %s", verb, got, want)
		}
	}
}

// event is an Event of a pod.
type event struct{ name, version, instance, kind, namespace, controller, reason string }

func (e event) manifest() string {
	if e.version == "v1" {
		return fmt.Sprintf(`{apiVersion: v1, kind: Event, metadata: {name: %s, namespace: %s}, reason: %s, message: m, type: Normal,
involvedObject: {kind: %s, name: a, namespace: %s}, reportingComponent: %s, reportingInstance: %s}`, e.name, partNamespace, e.reason, e.kind, e.namespace, e.controller, e.instance)
	}
	return fmt.Sprintf(`{apiVersion: events.k8s.io/v1, kind: Event, metadata: {name: %s, namespace: %s}, reason: %s, note: m, type: Normal, action: A,
eventTime: "2026-01-01T00:00:00.000000Z", regarding: {kind: %s, name: a, namespace: %s}, reportingController: %s, reportingInstance: %s}`, e.name, partNamespace, e.reason, e.kind, e.namespace, e.controller, e.instance)
}

// TestClusterEvents verifies that the token of a node writes only Events that name the node and the program, even where it has
// more rights than those of the manifest.
func TestClusterEvents(t *testing.T) {
	p := newPart(t, "worker-5")
	p.kubectl(fmt.Sprintf(`{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: events, namespace: %[1]s}, rules: [{apiGroups: ["", events.k8s.io], resources: [events], verbs: [create, patch, get, delete]}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: events, namespace: %[1]s}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: events},
subjects: [{kind: ServiceAccount, name: %s, namespace: %[1]s}]}`, partNamespace, partAccount), "apply", "-f", "-")
	const v1, own, blkio, reason = "events.k8s.io/v1", "worker-5", "nri-blkio", "BlkioRefused"
	denied := func(what, want, out string, err error) error {
		if err == nil || !strings.Contains(out, want) {
			return fmt.Errorf("%s: %w: %s, want %q", what, err, out, want)
		}
		return nil
	}
	bound := p.as(readFile(t, p.token, "token"))
	p.eventually("decisions of the API server", func() error { // a policy takes effect some time after it was created
		for _, tt := range []struct {
			event
			denied string
		}{
			{event{"a", v1, "worker-1", "Pod", partNamespace, blkio, reason}, "must be the node of the token, worker-5"},
			{event{"b", v1, "''", "Pod", partNamespace, blkio, reason}, "reportingInstance"},
			{event{"c", v1, own, "ConfigMap", partNamespace, blkio, reason}, "concerns a pod of its namespace"},
			{event{"d", "v1", own, "Pod", partNamespace, blkio, reason}, "writes Events of events.k8s.io"},
			{event{"e", v1, own, "Pod", partNamespace, "kubelet", reason}, "name it as reportingController"},
			{event{"f", v1, own, "Pod", partNamespace, blkio, "Killing"}, "their reasons begin with Blkio"},
		} {
			out, err := bound(tt.manifest(), "create", "--dry-run=server", "-f", "-")
			if err := denied(tt.name, tt.denied, out, err); err != nil {
				return err
			}
		}
		return nil
	})
	mine, other := event{"mine", v1, own, "Pod", partNamespace, blkio, reason}, event{"other", v1, "worker-1", "Pod", partNamespace, blkio, reason}
	if out, err := bound(mine.manifest(), "create", "-f", "-"); err != nil {
		t.Errorf("an Event of its own: %v: %s", err, out)
	}
	p.kubectl(other.manifest(), "create", "-f", "-")
	patch := []string{"patch", "events.events.k8s.io", "-n", partNamespace, "--type=merge", "-p"}
	for name, want := range map[string]string{"other": "must be the node of the token, worker-5", "mine": ""} {
		out, err := bound("", append(patch, `{"series": {"count": 2, "lastObservedTime": "2026-01-01T00:00:01.000000Z"}}`, name)...)
		if want == "" && err != nil {
			t.Errorf("a change of its own Event: %v: %s", err, out)
		}
		if want != "" {
			if err := denied(name, want, out, err); err != nil {
				t.Error(err)
			}
		}
	}
	out, err := bound("", "delete", "events.events.k8s.io", "-n", partNamespace, "mine")
	if err := denied("delete", "deletes no Events", out, err); err != nil {
		t.Error(err)
	}
	free := p.as(p.kubectl("", "create", "token", partAccount, "-n", partNamespace))
	out, err = free(mine.manifest(), "create", "--dry-run=server", "-f", "-")
	if err := denied("unbound token", "the token names no node", out, err); err != nil {
		t.Error(err)
	}
}

// as returns kubectl with a token.
func (p *part) as(token string) func(input string, args ...string) (string, error) {
	p.Helper()
	file := filepath.Join(p.TempDir(), "kubeconfig")
	config := fmt.Sprintf("{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c, user: u}}], users: [{name: u, user: {token: %s}}], clusters: [{name: c, cluster: {server: 'https://%s', certificate-authority: %s}}]}",
		strings.TrimSpace(token), server.address, filepath.Join(p.token, "ca.crt"))
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		p.Fatal(err)
	}
	return func(input string, args ...string) (string, error) {
		ctx, cancel := context.WithTimeout(context.Background(), deadline)
		defer cancel()
		cmd := exec.CommandContext(ctx, server.kubectl, append([]string{"--kubeconfig", file}, args...)...)
		cmd.Stdin = strings.NewReader(input)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
}

// TestClusterHostile verifies that what tenants can write at a real API server does not keep other documents from
// being written, and what is too large is omitted.
func TestClusterHostile(t *testing.T) {
	p := newPart(t, "worker-6")
	var many, volumes []string
	for i := range 300 {
		many = append(many, fmt.Sprintf("l%d: %s", i, strings.Repeat("v", 60)))
	}
	for i := range poddoc.MaxVolumes + 1 {
		volumes = append(volumes, fmt.Sprintf("{name: v%d, persistentVolumeClaim: {claimName: c%d}}", i, i))
	}
	p.namespace("hostile", strings.Join(many, ", "))
	p.namespace("victim", "")
	const one, large = "{containers: [{name: a, image: x}], volumes: [{name: v, persistentVolumeClaim: {claimName: %q}}]}", "limits.blkio.noderesource.dev/containers: %q"
	p.newClaim("hostile", "large", "", "", fmt.Sprintf("limits.blkio.noderesource.dev: %q", strings.Repeat("w", 5000)))
	victim := p.pod("victim", "db-0", "{containers: [{name: a, image: x}]}", "")
	pods := map[string]string{}
	for name, tt := range map[string]struct{ spec, annotations string }{
		"path":        {fmt.Sprintf(one, "../../etc"), ""},
		"claim":       {fmt.Sprintf(one, "large"), ""},
		"claims":      {"{containers: [{name: a, image: x}], volumes: [" + strings.Join(volumes, ", ") + "]}", ""},
		"annotation":  {fmt.Sprintf(one, "x"), fmt.Sprintf(large, strings.Repeat("/x wbps=1Mi; ", 10000))},
		"static":      {fmt.Sprintf(one, "x"), "kubernetes.io/config.mirror: " + victim},
		"traversal":   {fmt.Sprintf(one, "x"), "kubernetes.io/config.mirror: ../../../tmp/x"},
		"unprintable": {fmt.Sprintf(one, "x"), `limits.blkio.noderesource.dev/containers: "\u0000\u001b[2J\u2028"`},
	} {
		pods[name] = p.pod("hostile", name, tt.spec, tt.annotations)
	}
	p.start()
	omits := func(name, part string) {
		t.Helper()
		p.document(pods[name], func(d *poddoc.Document) string {
			if d.Omitted[part] == "" || d.Omitted[podfacts.PartNamespaceLabels] == "" {
				return fmt.Sprintf("omitted: %v, want %s and the labels", d.Omitted, part)
			}
			return ""
		})
	}
	omits("annotation", podfacts.PartAnnotations)
	omits("claims", podfacts.PartVolumes)
	p.document(pods["claim"], func(d *poddoc.Document) string { return missing(d.Volumes[0].Omitted, poddoc.PartLimits) })
	for name, want := range map[string]int{"path": 0, "unprintable": 1} {
		if d := p.document(pods[name], func(*poddoc.Document) string { return "" }); len(d.Volumes) != want {
			t.Errorf("%s: volumes %v", name, d.Volumes)
		}
	}
	d := p.document(victim, func(*poddoc.Document) string { return "" })
	if d.UID != victim || d.Namespace != "victim" || d.Name != "db-0" {
		t.Errorf("the document of another pod: %v", d)
	}
	for _, name := range []string{"static", "traversal"} { // they are no pods of the runtime
		p.gone(pods[name])
	}
	if got := len(p.times()); got != len(pods)-2+1 {
		t.Errorf("%d files, %v", got, p.times())
	}
}

// missing returns "" if a part is omitted.
func missing(omitted map[string]string, part string) string {
	if omitted[part] == "" {
		return fmt.Sprintf("omitted: %v, want %s", omitted, part)
	}
	return ""
}
