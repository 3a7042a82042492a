package check

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/plugin/manifest"
	"github.com/nri-blkio/nri-blkio/policy"
)

// TestSelect verifies that the disks that a target selects are the same ones, by name, for each call.
func TestSelect(t *testing.T) {
	m := &manifest.Pod{
		Volumes: []manifest.Volume{
			{Name: "v", Source: manifest.PersistentVolumeClaim, Claim: "c"},
			{Name: "mem", Source: manifest.EmptyDir, Medium: "Memory"},
			{Name: "read", Source: manifest.PersistentVolumeClaim, Claim: "r"},
		},
		Containers: []manifest.Container{
			{Name: "a", Mounts: []manifest.Mount{{Volume: "v", Path: "/data"}, {Volume: "mem", Path: "/mem"}, {Volume: "read", Path: "/read", ReadOnly: true}}},
			{Name: "b"},
		},
	}
	const rootfs, claim, readOnly = "disk of the writable layers", "disk of claim c", "disk of claim r"
	c := Checker{Policy: policy.Default()}
	for _, tt := range []struct{ container, kind, entry, want string }{
		{"a", "limits", "* wbps=1Gi", rootfs + ", " + claim},
		{"a", "limits", "* rbps=1Gi", rootfs + ", " + claim + ", " + readOnly},
		{"a", "limits", "/data wbps=1Gi", claim},
		{"a", "limits", "/data/below wbps=1Gi", claim},
		{"a", "limits", `"/data" wiops=1Gi`, claim},
		{"a", "limits", "rootfs riops=1Gi", rootfs},
		{"a", "limits", "/mem wbps=1Gi", `error: "/mem" cannot be limited: tmpfs is memory, not a disk`},
		{"a", "weight", "/data 1", claim},
		{"a", "weight", "* 1", rootfs + ", " + claim + ", " + readOnly},
		{"b", "limits", "* rbps=1Gi", rootfs},
		{"b", "limits", "/data wbps=1Gi", `error: "/data" is on no mount of the container`},
		{"", "limits", "* wbps=1Gi", rootfs + ", " + claim},
		{"", "limits", "/data wbps=1Gi", claim},
		{"", "limits", "/nope wbps=1Gi", ""},
		{"", "weight", "rootfs 1", rootfs},
	} {
		names, err := c.Select(t.Context(), m, tt.container, tt.kind, tt.entry)
		slices.Sort(names)
		want := strings.Split(tt.want, ", ")
		slices.Sort(want)
		got := strings.Join(names, ", ")
		if err != nil {
			got = "error: " + err.Error()
		}
		if got != strings.Join(want, ", ") && got != tt.want {
			t.Errorf("%q %s %q: got %q, want %q", tt.container, tt.kind, tt.entry, got, tt.want)
		}
	}
}

// TestDecided verifies that the decisions as values are those that the lines show.
func TestDecided(t *testing.T) {
	p, err := policy.ParseFile([]byte(`apiVersion: blkio.noderesource.dev/v1alpha1
kind: NodePolicy
classes: {bronze: {limits: ["* wbps=20Mi"], weight: 50}}
rules:
- {name: staged, match: {namespaces: [staged]}, class: bronze, mode: observe}
- {name: ignoring, match: {namespaces: [ignoring]}, annotations: ignore}
- {name: batch, match: {namespaces: [batch]}, class: bronze}
`))
	if err != nil {
		t.Fatal(err)
	}
	c := Checker{Policy: p}
	annotations := map[string]string{limitsOf + "container.a": "rootfs wbps=1", limitsOf + "container.b": "rootfs rbps=1Mi"}
	for namespace, want := range map[string]string{
		"batch":    "enforce: a bronze refused none; b bronze rbps=1048576 wbps=20971520 default=50; pod rbps=1048576 wbps=20971520",
		"staged":   "observe: a bronze refused wbps=20971520 default=50; b bronze rbps=1048576 wbps=20971520 default=50; pod wbps=41943040",
		"ignoring": "enforce ignored: a none; b none; pod none",
		"web":      "enforce: a refused none; b rbps=1048576; pod rbps=1048576",
	} {
		m := podOf(annotations, "a", "b")
		m.Namespace = namespace
		d := c.Pod(t.Context(), m).Decided
		got := string(d.Mode)
		if d.IgnoresAnnotations {
			got += " ignored"
		}
		got += ":"
		for i, of := range append(d.Containers, d.Total) {
			if i > 0 {
				got += ";"
			}
			got += " " + text(&of)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s: -want +got:\n%s", namespace, d)
		}
	}
	if d := c.Pod(t.Context(), podOf(nil, "a")).Decided; len(d.Containers) != 1 || d.Containers[0].Container != "a" || d.Mode != policy.ModeEnforce {
		t.Errorf("nothing requested: %+v", d)
	}
}

func text(d *Decision) string {
	words := []string{"pod"}
	if d.Container != "" {
		words = []string{d.Container}
	}
	if d.Class != "" {
		words = append(words, d.Class)
	}
	if d.Refused != "" {
		words = append(words, "refused")
	}
	for _, s := range d.Settings {
		words = append(words, s.Key.String()+"="+s.Amount.String())
	}
	if len(d.Settings) == 0 {
		words = append(words, "none")
	}
	return strings.Join(words, " ")
}
