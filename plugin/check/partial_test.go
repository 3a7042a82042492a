package check

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/plugin/manifest"
	"github.com/nri-blkio/nri-blkio/policy"
)

// reportOf returns the report about a manifest on an unknown node with the built-in policy.
func reportOf(t *testing.T, text string) Report {
	t.Helper()
	set, err := manifest.Read(strings.NewReader(text), "f")
	if err != nil {
		t.Fatal(err)
	}
	set.Link()
	c := Checker{Policy: policy.Default()}
	return c.Report(t.Context(), &set, PolicySource{Name: BuiltIn})
}

// messages returns the findings, errors, effects and unknown facts of a report.
func messages(r *Report) (out []string) {
	for i := range r.Findings {
		out = append(out, string(r.Findings[i].Severity)+" "+r.Findings[i].String())
	}
	for i := range r.Pods {
		p := &r.Pods[i]
		for _, list := range []struct {
			name  string
			lines []string
		}{{"error ", p.Errors}, {"effect ", p.Effects}, {"unknown ", p.Unknown}} {
			for _, line := range list.lines {
				out = append(out, list.name+line)
			}
		}
	}
	return out
}

const limits = "limits.blkio.noderesource.dev"

// TestPartial verifies that what a controller may add to a pod is unknown, and that the rest is checked.
func TestPartial(t *testing.T) {
	template := func(key, value, containers string) string {
		return "apiVersion: example.com/v1\nkind: Database\nmetadata: {name: d}\nspec:\n  pod:\n    metadata: {annotations: {\n      " + limits + key + ": \"" + value + "\"}}\n" +
			"    spec: {containers: " + containers + "}\n"
	}
	const key = "f:7: limits.blkio.noderesource.dev/container.db: entry 1 "
	const db = "[{name: db, volumeMounts: [{name: cache, mountPath: /cache}]}]"
	for _, tt := range []struct {
		name, in string
		want     []string
	}{
		{"a mount", template("/container.db", "/data wbps=1Mi", db), []string{`unknown ` + key + `"/data wbps=1Mi": whether the controller of the Database adds what the entry names`}},
		{"a volume", template("/container.db", "@data wbps=1Mi", db), []string{`unknown ` + key + `"@data wbps=1Mi": whether the controller of the Database adds what the entry names`}},
		{"a container", template("/container.x", "/data wbps=1Mi", db), []string{`unknown whether the controller of the Database adds the container "x"`}},
		{"a mount of each", template("/containers", "/data wbps=1Mi", db), []string{
			`unknown limits.blkio.noderesource.dev/containers: entry 1: no container of the pod has a mount at "/data", unless the controller of the Database adds it`,
		}},
		{"an undeclared volume", template("/container.db", "/cache wbps=1Mi", db), []string{"unknown which disks these are, and whether they can be limited: disk of volume cache"}},
		{"no name", template("/container.x", "/data wbps=x", "[{image: i}]"), []string{
			"error f:7: nri-blkio: limits.blkio.noderesource.dev/container.x: entry 1 \"/data wbps=x\": invalid number \"x\" (write a whole number such as 50Mi)",
			`unknown whether the controller of the Database adds the container "x"`,
		}},
		{"a wrong one of two", template("/container.db", "/data wbps=1Mi; /x wpbs=1Mi", db), []string{
			"error f:7: nri-blkio: limits.blkio.noderesource.dev/container.db: entry 2 \"/x wpbs=1Mi\": unknown key \"wpbs\" (did you mean \"wbps\"?)",
			"effect container db is not created",
			`unknown ` + key + `"/data wbps=1Mi": whether the controller of the Database adds what the entry names`,
		}},
		{"a field with annotations", "apiVersion: example.com/v1\nkind: Database\nspec: {podAnnotations: {" + limits + "/pod: x}}\n", []string{
			"error f:3: nri-blkio: limits.blkio.noderesource.dev/pod: invalid scope \"pod\" (write /containers for each container, /pod-total for the pod as a whole, or /container.NAME)",
			"unknown the containers, mounts and labels of the pods: spec.podAnnotations is read as annotations of a pod, and whether the controller of the Database copies it to pods is unknown",
		}},
	} {
		r := reportOf(t, tt.in)
		if d := cmp.Diff(tt.want, messages(&r)); d != "" {
			t.Errorf("%s: -want +got:\n%s", tt.name, d)
		}
	}
}

// TestReplicas verifies that a StatefulSet names the volume of a claim template, which is the same in each replica.
func TestReplicas(t *testing.T) {
	set := func(spec, value string) string {
		return "apiVersion: apps/v1\nkind: StatefulSet\nmetadata: {name: db}\nspec:\n  " + spec + "\n  template:\n    metadata: {annotations: {\n      " + limits + "/container.db: \"" + value + "\"}}\n" +
			"    spec: {containers: [{name: db, volumeMounts: [{name: data, mountPath: /data}]}]}\n  volumeClaimTemplates: [{metadata: {name: data}}]\n"
	}
	for _, tt := range []struct {
		name, in string
		errors   []string
	}{
		{"a path", set("replicas: 3", "/data wbps=1Mi"), nil},
		{"a volume", set("replicas: 3", "@data wbps=1Mi"), nil},
		{"a claim", set("ordinals: {start: 5}", "@data-db-5 wbps=1Mi"), []string{
			`f:8: nri-blkio: limits.blkio.noderesource.dev/container.db: entry 1 "@data-db-5 wbps=1Mi": volume "data-db-5" is on no mount of the container (write the name of a volume of the pod that the container mounts)`,
		}},
		{"an error of both", set("replicas: 2", "/data wbps=x"), []string{
			`f:8: nri-blkio: limits.blkio.noderesource.dev/container.db: entry 1 "/data wbps=x": invalid number "x" (write a whole number such as 50Mi)`,
		}},
	} {
		if d := cmp.Diff(tt.errors, reportOf(t, tt.in).Pods[0].Errors); d != "" {
			t.Errorf("%s: -want +got:\n%s", tt.name, d)
		}
	}
}

// TestClaimFindings verifies that wrong limits of claims and of classes are findings, with the line.
func TestClaimFindings(t *testing.T) {
	for _, tt := range []struct {
		name, in string
		want     []string
		claims   int
	}{
		{"a right claim", "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: a, annotations: {" + limits + ": wbps=1Mi}}\n", nil, 1},
		{"no limits", "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: a}\n", nil, 1},
		{"a wrong claim", "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: a, annotations: {\n  " + limits + ": wbps=1MB}}\n", []string{
			`error f:4: PersistentVolumeClaim default/a: metadata.annotations: "wbps=1MB": invalid quantity "1MB" (write 1M or 1Mi)`,
		}, 1},
		{"the limits of a pod", "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: a, annotations: {\n  " + limits + ": '* wbps=1Mi'}}\n", []string{
			`warning f:4: PersistentVolumeClaim default/a: metadata.annotations: "* wbps=1Mi": limits with targets are those of a pod, and have no effect on a claim (write for example "wbps=50Mi")`,
		}, 1},
		{"mixed limits", "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: a, annotations: {\n  " + limits + ": '* wbps=1Mi; rbps=1'}}\n", []string{
			`error f:4: PersistentVolumeClaim default/a: metadata.annotations: "* wbps=1Mi; rbps=1": "*" is a target (the limits of a claim have none; write for example "wbps=50Mi")`,
		}, 1},
		{"a near miss", "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: a, annotations: {\n  limits.blkio.nodersource.dev: wbps=1Mi}}\n", []string{
			`error f:4: PersistentVolumeClaim a: metadata.annotations: annotation "limits.blkio.nodersource.dev" has no effect (did you mean "limits.blkio.noderesource.dev"?)`,
		}, 1},
		{"a field of an operator", "apiVersion: example.com/v1\nkind: Database\nmetadata: {name: d}\nspec: {volumeClaimTemplate: {metadata: {annotations: {\n  " + limits + ": wbps=1MB}}}}\n", []string{
			`error f:5: Database d: spec.volumeClaimTemplate.metadata.annotations: "wbps=1MB": invalid quantity "1MB" (write 1M or 1Mi)`,
		}, 1},
		{"limits of a pod in a field of an operator", "apiVersion: example.com/v1\nkind: Database\nmetadata: {name: d}\nspec: {volumeClaimTemplate: {metadata: {annotations: {\n  " + limits + ": '* wbps=1Mi'}}}}\n", []string{
			`warning f:5: Database d: spec.volumeClaimTemplate.metadata.annotations: "* wbps=1Mi": limits with targets are those of a pod, and have no effect on a claim (write for example "wbps=50Mi")`,
		}, 1},
		{"two keys in a class", "apiVersion: storage.k8s.io/v1\nkind: VolumeAttributesClass\nmetadata: {name: c}\nparameters:\n  blkio.noderesource.dev/iops: '9'\n  blkio.noderesource.dev/bps: 1Mi\n" +
			"  blkio.noderesource.dev/wbps: 1Mi\n  wbps: 2Mi\n  iops: '3000'\n", []string{
			`error f:7: VolumeAttributesClass c: parameters: "blkio.noderesource.dev/bps=1Mi": the keys "wbps" and "bps" set the same limit (bps and iops set both directions; write one of the two keys)`,
		}, 1},
		{
			"a class", "apiVersion: storage.k8s.io/v1\nkind: VolumeAttributesClass\nmetadata: {name: c}\nparameters:\n  blkio.noderesource.dev/wbps: 1MB\n" +
				"  blkio.noderesource.dev/rpbs: 1Mi\n  blkio.noderesource.dev/x: 1Mi\n  wbps: 1MB\n  rbps: 1Mi\n  maxReadIops: '1k'\n  example.com/x: z\n",
			[]string{
				`error f:6: VolumeAttributesClass c: parameters: unknown parameter "blkio.noderesource.dev/rpbs" (did you mean "blkio.noderesource.dev/rbps"?)`,
				`error f:5: VolumeAttributesClass c: parameters: "blkio.noderesource.dev/wbps=1MB": invalid quantity "1MB" (write 1M or 1Mi)`,
				`error f:7: VolumeAttributesClass c: parameters: unknown parameter "blkio.noderesource.dev/x" (there are blkio.noderesource.dev/rbps, blkio.noderesource.dev/wbps, blkio.noderesource.dev/riops, blkio.noderesource.dev/wiops, blkio.noderesource.dev/bps, blkio.noderesource.dev/iops)`,
				`warning f:8: VolumeAttributesClass c: parameters: "wbps=1MB": invalid quantity "1MB" (write 1M or 1Mi)`,
			},
			1,
		},
	} {
		r := reportOf(t, tt.in)
		if d := cmp.Diff(tt.want, messages(&r)); d != "" || r.Claims != tt.claims || len(r.Pods) > 0 {
			t.Errorf("%s: %d claims, %d pods; -want +got:\n%s", tt.name, r.Claims, len(r.Pods), d)
		}
	}
}

// TestFault verifies that a fault of the program costs one pod.
func TestFault(t *testing.T) {
	set := manifest.Set{Pods: []manifest.Pod{*podOf(nil, "a"), *podOf(nil, "b")}}
	broken := Checker{} // no policy
	r := broken.Report(t.Context(), &set, PolicySource{})
	for i := range r.Pods {
		if len(r.Pods[i].Errors) != 1 || !strings.Contains(r.Pods[i].Errors[0], "a fault of this program") {
			t.Errorf("%+v", r.Pods[i])
		}
	}
	if len(r.Pods) != 2 || !r.HasErrors() {
		t.Errorf("%+v", r)
	}
}

// TestDeviceTarget verifies the hint for a device, which is what other programs take for a target.
func TestDeviceTarget(t *testing.T) {
	const pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: p, annotations: {" + limits + "/container.c: "
	for target, want := range map[string]string{
		"/dev/sda": "(a target is a path in the container: write the mount path of the volume on that disk)",
		"/dev/shm": "(remove the entry, or use a volume on a local disk)",
	} {
		r := reportOf(t, pod+target+" wbps=1Mi}}\nspec: {containers: [{name: c}]}\n")
		if errs := r.Pods[0].Errors; len(errs) != 1 || !strings.HasSuffix(errs[0], want) {
			t.Errorf("%s: %q", target, errs)
		}
	}
}
