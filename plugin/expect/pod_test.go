package expect

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/plugin/manifest"
)

// TestFind verifies which pod of a manifest a case selects, and how the case changes it.
func TestFind(t *testing.T) {
	set := &manifest.Set{}
	for _, o := range []manifest.Object{
		{Kind: "StatefulSet", Namespace: "prod", Name: "database"},
		{Kind: "Job", Namespace: "prod", Name: "database"},
		{Kind: "Pod", Namespace: "a", Name: "web"},
		{Kind: "Pod", Namespace: "b", Name: "web"},
	} {
		set.Pods = append(set.Pods, manifest.Pod{Object: o, Traits: manifest.Traits{Labels: map[string]string{"of": o.String()}, QOS: manifest.Burstable}})
	}
	for name, tt := range map[string]struct {
		pod  Pod
		want string // the label and the namespace, or the error
	}{
		"kind":               {Pod{Kind: "Job", Name: "database"}, "Job prod/database in prod"},
		"kind alone":         {Pod{Manifest: "x", Kind: "Job"}, "Job prod/database in prod"},
		"moved":              {Pod{Kind: "Job", Name: "database", Namespace: "test"}, "Job prod/database in test"},
		"by namespace":       {Pod{Name: "web", Namespace: "b"}, "Pod b/web in b"},
		"two kinds":          {Pod{Name: "database"}, "2 pods and pod templates (write manifest, kind, name and namespace of one)"},
		"two namespaces":     {Pod{Name: "web"}, "2 pods and pod templates (write manifest, kind, name and namespace of one)"},
		"in neither of them": {Pod{Name: "web", Namespace: "c"}, `none with name "web" namespace "c"`},
		"misspelled":         {Pod{Name: "databse", Kind: "Job"}, `none with kind "Job" name "databse" (did you mean "database"?)`},
		"any":                {Pod{Manifest: "x"}, "4 pods and pod templates (write manifest, kind, name and namespace of one)"},
	} {
		m, err := tt.pod.Find(set)
		got := ""
		if err != nil {
			got = err.Error()
		} else {
			got = m.Labels["of"] + " in " + m.Namespace
		}
		if got != tt.want {
			t.Errorf("%s: got %q, want %q", name, got, tt.want)
		}
	}
	if _, err := (&Pod{Manifest: "x"}).Find(&manifest.Set{}); err == nil || err.Error() != "none" {
		t.Errorf("an empty manifest: %v", err)
	}
	if _, err := (&Pod{Name: "a"}).Find(&manifest.Set{}); err == nil || err.Error() != `none with name "a"` {
		t.Errorf("without manifests: %v", err)
	}
}

// TestChanges verifies that a case adds labels and annotations to those of a manifest, and does not change the
// pod for later cases.
func TestChanges(t *testing.T) {
	set := &manifest.Set{Pods: []manifest.Pod{{
		Object: manifest.Object{Kind: "Pod", Namespace: "a", Name: "web"}, Annotations: map[string]string{"x": "1", "y": "2"},
		Traits: manifest.Traits{Labels: map[string]string{"tier": "web"}, QOS: manifest.Burstable},
	}}}
	p := Pod{Name: "web", Annotations: map[string]string{"y": "3"}, Traits: manifest.Traits{Labels: map[string]string{"team": "a"}, QOS: manifest.BestEffort}}
	got, err := p.Find(set)
	if err != nil {
		t.Fatal(err)
	}
	want := set.Pods[0]
	want.Annotations, want.Traits = map[string]string{"x": "1", "y": "3"}, manifest.Traits{Labels: map[string]string{"tier": "web", "team": "a"}, QOS: manifest.BestEffort}
	if d := cmp.Diff(&want, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	plain := Pod{Name: "web"}
	if again, err := plain.Find(set); err != nil || again.Annotations["y"] != "2" || again.Labels["team"] != "" || again.QOS != manifest.Burstable {
		t.Errorf("the pod was changed: %+v, %v", again, err)
	}
}

// TestAlone verifies that a pod without a manifest is in the namespace default, has one container, and no
// resources.
func TestAlone(t *testing.T) {
	for _, tt := range []struct {
		pod        Pod
		namespace  string
		qos        string
		containers []string
	}{
		{Pod{}, "default", manifest.BestEffort, []string{"main"}},
		{Pod{Namespace: "a", Traits: manifest.Traits{QOS: manifest.Guaranteed}, Containers: []string{"x", "y"}}, "a", manifest.Guaranteed, []string{"x", "y"}},
	} {
		m, err := tt.pod.Find(&manifest.Set{})
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, c := range m.Containers {
			names = append(names, c.Name)
		}
		if d := cmp.Diff(tt.containers, names); d != "" || m.Namespace != tt.namespace || m.QOS != tt.qos {
			t.Errorf("%+v: %+v", tt.pod, m)
		}
	}
}
