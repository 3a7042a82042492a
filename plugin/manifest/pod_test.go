package manifest

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// onePod reads a manifest with one pod and no findings.
func onePod(t *testing.T, in string) Pod {
	t.Helper()
	set := mustRead(t, in)
	if len(set.Pods) != 1 || len(set.Findings) > 0 {
		t.Fatal(render(&set))
	}
	return set.Pods[0]
}

func TestVolumes(t *testing.T) {
	tests := []struct {
		in   string // of a volume with the name v
		want Volume
	}{
		{"emptyDir: {}", Volume{Source: EmptyDir}},
		{"emptyDir: ", Volume{Source: EmptyDir}},
		{"emptyDir: {medium: Memory, sizeLimit: 1Gi}", Volume{Source: EmptyDir, Medium: "Memory"}},
		{"emptyDir: {medium: HugePages-2Mi}", Volume{Source: EmptyDir, Medium: "HugePages-2Mi"}},
		{"hostPath: {path: /srv, type: Directory}", Volume{Source: HostPath, Path: "/srv"}},
		{"persistentVolumeClaim: {claimName: c}", Volume{Source: PersistentVolumeClaim, Claim: "c"}},
		{"persistentVolumeClaim: {claimName: c, readOnly: true}", Volume{Source: PersistentVolumeClaim, Claim: "c", ReadOnly: true}},
		{"csi: {driver: d, readOnly: on}", Volume{Source: CSI, Driver: "d", ReadOnly: true}},
		{"configMap: {name: c, items: [{key: k, path: p}]}", Volume{Source: "configMap"}},
		{"secret: {secretName: s}, configMap: null", Volume{Source: "secret"}},
		{"projected: {sources: [{secret: {name: s}}]}", Volume{Source: "projected"}},
		{"downwardAPI: {items: []}", Volume{Source: "downwardAPI"}},
		{"nfs: {server: s, path: /p, readOnly: true}", Volume{Source: "nfs", ReadOnly: true}},
		{"ephemeral: {volumeClaimTemplate: {spec: {}}}", Volume{Source: "ephemeral", Claim: "-v"}},
		{"image: {reference: r}", Volume{Source: "image"}},
		{"ofALaterVersion: {x: 1}", Volume{Source: "ofALaterVersion"}},
	}
	for _, tt := range tests {
		p := onePod(t, "kind: Pod\nspec:\n  containers: [{name: c}]\n  volumes: [{name: v, "+tt.in+"}]\n")
		tt.want.Name = "v"
		if d := cmp.Diff([]Volume{tt.want}, p.Volumes); d != "" {
			t.Errorf("%s: -want +got:\n%s", tt.in, d)
		}
	}
}

// TestVolumeOfMerge verifies that a source that replaces one of a merge is no second source.
func TestVolumeOfMerge(t *testing.T) {
	p := onePod(t, "kind: Pod\nx: &v {name: v, hostPath: {path: /a}}\nspec: {containers: [{name: c}], volumes: [{<<: *v, hostPath: {path: /b, readOnly: true}}]}\n")
	if d := cmp.Diff([]Volume{{Name: "v", Source: HostPath, Path: "/b", ReadOnly: true}}, p.Volumes); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

// TestAnnotations covers the values that the API server stores, and the line of each key.
func TestAnnotations(t *testing.T) {
	p := onePod(t, "kind: Pod\nmetadata:\n  annotations:\n    none:\n    nothing: ~\n    empty: ''\n    date: 2001-01-01\n    quoted: 'yes'\n    text: |\n      two\n      lines\nspec: {containers: [{name: c}]}\n")
	want := map[string]string{"none": "", "nothing": "", "empty": "", "date": "2001-01-01", "quoted": "yes", "text": "two\nlines\n"}
	if d := cmp.Diff(want, p.Annotations); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	lines := map[string]int{"none": 4, "nothing": 5, "empty": 6, "date": 7, "quoted": 8, "text": 9}
	if d := cmp.Diff(lines, p.Lines); d != "" {
		t.Errorf("lines, -want +got:\n%s", d)
	}
	if p := onePod(t, minimalPod); p.Annotations == nil || p.Lines == nil {
		t.Errorf("without annotations: %v, %v", p.Annotations, p.Lines)
	}
}

func TestClaims(t *testing.T) {
	const template = "template: {spec: {containers: [{name: c, volumeMounts: [{name: data, mountPath: /d}]}], volumes: [{name: data, emptyDir: {}}, {name: other, emptyDir: {}}]}}"
	other := Volume{Name: "other", Source: EmptyDir}
	tests := []struct {
		name, kind, spec string
		want             []Volume
	}{
		{"a claim replaces a volume", "StatefulSet", "volumeClaimTemplates: [{metadata: {name: data}}]", []Volume{other, {Name: "data", Source: PersistentVolumeClaim, Claim: "data-db-0", Claims: "data-db-"}}},
		{"the first ordinal", "StatefulSet", "ordinals: {start: 5}, volumeClaimTemplates: [{metadata: {name: data}}]", []Volume{other, {Name: "data", Source: PersistentVolumeClaim, Claim: "data-db-5", Claims: "data-db-"}}},
		{"no templates", "StatefulSet", "volumeClaimTemplates: []", []Volume{{Name: "data", Source: EmptyDir}, other}},
		{"other kinds have none", "Deployment", "volumeClaimTemplates: [{metadata: {name: data}}]", []Volume{{Name: "data", Source: EmptyDir}, other}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := onePod(t, "kind: "+tt.kind+"\nmetadata: {name: db}\nspec: {"+tt.spec+", "+template+"}\n")
			if d := cmp.Diff(tt.want, p.Volumes); d != "" {
				t.Errorf("-want +got:\n%s", d)
			}
		})
	}
}

func TestContainers(t *testing.T) {
	p := onePod(t, `kind: Pod
metadata: {name: p}
spec:
  resources: {limits: {memory: 2Gi}}
  runtimeClassName: kata
  ephemeralContainers: [{name: dbg, volumeMounts: [{name: v, mountPath: /v}]}]
  containers:
  - name: main
    restartPolicy: Always   # of no meaning here
    resources: {limits: {memory: "512Mi"}, requests: {memory: 1Gi}}
    securityContext: {privileged: true}
    volumeMounts:
    - {name: v, mountPath: /a/, subPath: x}
    - {name: v, mountPath: /b, subPathExpr: $(X), readOnly: true}
    volumeDevices: [{name: v, devicePath: /dev/x}]
  initContainers: [{name: one, restartPolicy: Never}, {name: two, restartPolicy: Always}]
  volumes: [{name: v, emptyDir: {}}]
`)
	want := []Container{
		{Name: "one", Role: Init},
		{Name: "two", Role: Sidecar},
		{
			Name: "main", Role: Main, Privileged: true, MemoryLimit: 512 << 20,
			Mounts:  []Mount{{Volume: "v", Path: "/a/", SubPath: "x"}, {Volume: "v", Path: "/b", SubPath: "$(X)", ReadOnly: true}},
			Devices: []Device{{Volume: "v", Path: "/dev/x"}},
		},
		{Name: "dbg", Role: Ephemeral, Mounts: []Mount{{Volume: "v", Path: "/v"}}},
	}
	if d := cmp.Diff(want, p.Containers); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	if p.MemoryLimit != 2<<30 || p.RuntimeClass != "kata" || p.Template != "" || p.Namespace != "default" {
		t.Errorf("%+v", p)
	}
}

func TestBytes(t *testing.T) {
	for in, want := range map[string]uint64{
		"1Gi": 1 << 30, "128974848": 128974848, "129e6": 129000000, "129M": 129000000, "128974848000m": 128974848, "0": 0, `"1Ki"`: 1024, "1E": 1e18, "": 0, "null": 0,
		"1e-36": 1, "0e36": 0, strings.Repeat("0", 39) + "5": 5,
	} {
		p := onePod(t, "kind: Pod\nspec: {containers: [{name: c, resources: {limits: {memory: "+in+"}}}]}\n")
		if got := p.Containers[0].MemoryLimit; got != want {
			t.Errorf("%q: %d, want %d", in, got, want)
		}
	}
	for _, in := range []string{"1GB", "-1Gi", "1e37", "1e-37", strings.Repeat("0", 41), "[1]", "x"} {
		set := mustRead(t, "kind: Pod\nspec: {containers: [{name: c, resources: {limits: {memory: "+in+"}}}]}\n")
		if len(set.Findings) != 1 || set.Pods[0].Containers[0].MemoryLimit != 0 {
			t.Errorf("%q: %s", in, render(&set))
		}
	}
}

func TestQuote(t *testing.T) {
	long := strings.Repeat("x", 200)
	for in, want := range map[string]string{
		"a": `"a"`, "ü\x1b\n": `"\u00fc\x1b\n"`, "": `""`, long: `"` + long[:maxQuoted-len(`""...`)] + `"...`,
	} {
		if got := quoted(in); got != want {
			t.Errorf("%q: %s, want %s", in, got, want)
		}
	}
}
