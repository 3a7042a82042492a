package apiserver

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/plugin/mailbox"
	"github.com/nri-blkio/nri-blkio/plugin/poddoc"
	"github.com/nri-blkio/nri-blkio/plugin/podfacts"
	"github.com/nri-blkio/nri-blkio/policy"
)

// dbSpec is a pod with a claim, a raw block volume, an ephemeral volume, and a volume that is no claim.
const dbSpec = `{
  initContainers: [{name: init, image: x, volumeMounts: [{name: data, mountPath: /init}]}],
  containers: [{name: db, image: x,
    volumeMounts: [{name: data, mountPath: /var/lib/db, subPath: a}, {name: tmp, mountPath: /tmp/}, {name: empty, mountPath: /empty}],
    volumeDevices: [{name: raw, devicePath: /dev/raw}]}],
  volumes: [
    {name: data, persistentVolumeClaim: {claimName: data-db-0}},
    {name: raw, persistentVolumeClaim: {claimName: raw}},
    {name: tmp, ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}}},
    {name: empty, emptyDir: {}}]}`

// newClaim creates a claim. It is bound if it has a volume.
func (p *part) newClaim(namespace, name, volume, class, annotations string) {
	p.Helper()
	more := ""
	if class != "" {
		more = "volumeAttributesClassName: " + class + ", "
	}
	p.kubectl(fmt.Sprintf(`{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {namespace: %s, name: %s, annotations: {%s}},
spec: {volumeName: %q, %sstorageClassName: fast, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}`,
		namespace, name, annotations, volume, more), "apply", "-f", "-")
	if volume != "" {
		p.kubectl("", "patch", "pvc", "-n", namespace, name, "--subresource=status", "-p", `{"status": {"phase": "Bound"}}`)
	}
}

// newClass creates a class with parameters, anew if it exists: they cannot be changed.
func (p *part) newClass(name, parameters string) {
	p.Helper()
	const kind = "VolumeAttributesClass"
	p.kubectl("", "delete", kind, name, "--ignore-not-found")
	p.kubectl(fmt.Sprintf("{apiVersion: storage.k8s.io/v1, kind: %s, metadata: {name: %s}, driverName: any.example, parameters: {%s}}", kind, name, parameters), "create", "-f", "-")
	// A controller that does not run here removes it.
	p.kubectl("", "patch", kind, name, "-p", `{"metadata": {"finalizers": null}}`)
}

// TestCluster verifies that the document of a pod follows the pod, its namespace, its claims and their classes.
func TestCluster(t *testing.T) {
	p := newPart(t, "worker-1")
	p.newClass("gold", "wbps: 200Mi, blkio.noderesource.dev/riops: 1k, iops: '3000'")
	p.newClass("silver", "blkio.noderesource.dev/wbps: 50Mi")
	p.namespace("prod", "tier: gold")
	p.newClaim("prod", "data-db-0", "pvc-1", "gold", `limits.blkio.noderesource.dev: "wbps=50Mi", other: x`)
	p.newClaim("prod", "db-0-tmp", "", "", "")
	p.start()
	uid := p.pod("prod", "db-0", dbSpec, `limits.blkio.noderesource.dev/containers: "* wbps=20Mi", example.com/a: b`)
	limits := "wbps=50Mi"
	want := documentOfDB(uid, &limits)
	p.equals(want)
	p.state("connected")
	data := &want.Volumes[0]
	for _, step := range []struct {
		name   string
		args   []string
		change func()
	}{
		{"annotation", []string{"annotate", "pod", "db-0", "--overwrite", "limits.blkio.noderesource.dev/containers=* wbps=10Mi"}, func() {
			want.Annotations = map[string]string{"limits.blkio.noderesource.dev/containers": "* wbps=10Mi"}
		}},
		{"annotation removed", []string{"annotate", "pod", "db-0", "limits.blkio.noderesource.dev/containers-"}, func() { want.Annotations = map[string]string{} }},
		{"namespace relabelled", []string{"label", "namespace", "prod", "--overwrite", "tier=silver"}, func() {
			want.NamespaceLabels = map[string]string{"tier": "silver"}
		}},
		{"claim annotated", []string{"annotate", "pvc", "data-db-0", "--overwrite", "limits.blkio.noderesource.dev=wbps=10Mi"}, func() { limits = "wbps=10Mi" }},
		{"another class", []string{"patch", "pvc", "data-db-0", "-p", `{"spec": {"volumeAttributesClassName": "silver"}}`}, func() {
			data.Class = &policy.ClaimClass{Name: "silver", Rates: map[string]string{"blkio.noderesource.dev/wbps": "50Mi"}}
		}},
		{"class deleted", []string{"delete", "volumeattributesclass", "silver"}, func() { data.Class = &policy.ClaimClass{Name: "silver"} }},
	} {
		p.kubectl("", append([]string{"-n", "prod"}, step.args...)...)
		step.change()
		p.equals(want)
	}
	p.newClass("silver", "rbps: 10Mi")
	data.Class = &policy.ClaimClass{Name: "silver", Rates: map[string]string{"rbps": "10Mi"}}
	p.newClaim("prod", "raw", "", "", "")
	want.Volumes[1].Size = 1 << 30
	p.equals(want)
	// A pod that is created again under its name has another document.
	p.deletePod("prod", "db-0")
	again := p.pod("prod", "db-0", dbSpec, "")
	p.gone(uid)
	want.UID = again
	p.equals(want)
	p.kubectl("", "patch", "pod", "-n", "prod", "db-0", "--subresource=status", "-p", `{"status": {"phase": "Succeeded"}}`)
	p.gone(again)
}

// documentOfDB returns the document of the pod of TestCluster, as it is created.
func documentOfDB(uid string, limits *string) *poddoc.Document {
	return &poddoc.Document{
		Version: 1,
		UID:     uid,
		Facts: podfacts.Facts{
			Namespace:       "prod",
			Name:            "db-0",
			Annotations:     map[string]string{"limits.blkio.noderesource.dev/containers": "* wbps=20Mi"},
			Labels:          map[string]string{},
			NamespaceLabels: map[string]string{"tier": "gold"},
			Volumes: []policy.Volume{
				{
					Name: "data", Claim: "data-db-0", Limits: limits, Size: 1 << 30,
					Places: []policy.Place{{Container: "db", Path: "/var/lib/db"}, {Container: "init", Path: "/init"}},
					Class:  &policy.ClaimClass{Name: "gold", Rates: map[string]string{"wbps": "200Mi", "blkio.noderesource.dev/riops": "1k"}},
				},
				{Name: "raw", Claim: "raw", Places: []policy.Place{{Container: "db", Path: "/dev/raw"}}},
				{Name: "tmp", Claim: "db-0-tmp", Size: 1 << 30, Places: []policy.Place{{Container: "db", Path: "/tmp"}}},
			},
		},
	}
}

// TestClusterRestarts verifies that documents outlive the part and an API server that is away, and are complete
// again once both are back. What has not changed is not written again.
func TestClusterRestarts(t *testing.T) {
	p := newPart(t, "worker-2")
	p.namespace("restarts", "")
	const spec = "{containers: [{name: a, image: x}], volumes: [{name: v, persistentVolumeClaim: {claimName: c}}]}"
	p.newClaim("restarts", "c", "", "", `limits.blkio.noderesource.dev: "wbps=1Mi"`)
	p.start()
	kept, deleted := p.pod("restarts", "kept", spec, ""), p.pod("restarts", "deleted", spec, "")
	isThere := func(*poddoc.Document) string { return "" }
	p.document(kept, isThere)
	p.document(deleted, isThere)
	before := p.times()
	unchanged := func(when string) {
		t.Helper()
		if d := cmp.Diff(before, p.times()); d != "" {
			t.Errorf("%s: -before +after:\n%s", when, d)
		}
	}
	p.stop()
	unchanged("after the part has ended")
	p.start()
	p.state("connected")
	p.document(kept, isThere)
	unchanged("after a restart")

	p.proxy.interrupt()
	p.kubectl("", "annotate", "pvc", "-n", "restarts", "c", "--overwrite", "limits.blkio.noderesource.dev=wbps=2Mi")
	p.deletePod("restarts", "deleted")
	if reason := p.state("disconnected"); reason == "" {
		t.Error("disconnected without a reason")
	}
	unchanged("while the API server is away")
	p.stop()
	stray := "0f9bd3ce-7a4e-4b0c-9f52-8d1d5f1c2b3a"
	for _, name := range []string{mailbox.FileName(stray), mailbox.FileName(stray) + ".new", "other"} {
		if err := os.WriteFile(p.dir+"/"+name, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	before = p.times()
	p.start()
	p.state("disconnected")
	unchanged("after a start without the API server")

	p.proxy.restore()
	p.state("connected")
	p.document(kept, func(d *poddoc.Document) string { return cmp.Diff("wbps=2Mi", *d.Volumes[0].Limits) })
	p.gone(deleted)
	p.gone(stray)
	p.eventually("removal of what was never completed", func() error {
		if d := cmp.Diff([]string{mailbox.FileName(kept), "other"}, names(p.times())); d != "" {
			return fmt.Errorf("files: %s", d)
		}
		return nil
	})
	if err := os.Remove(p.dir + "/" + mailbox.FileName(kept)); err != nil {
		t.Fatal(err)
	}
	p.document(kept, isThere)
}

// names returns the sorted names of files.
func names(files map[string]int64) []string { return slices.Sorted(maps.Keys(files)) }
