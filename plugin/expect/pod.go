package expect

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/nri-blkio/nri-blkio/plugin/manifest"
	"github.com/nri-blkio/nri-blkio/policy"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
	"github.com/nri-blkio/nri-blkio/policy/quote"
	"github.com/nri-blkio/nri-blkio/policy/spelling"
)

// Pod describes a pod: by itself or, if Manifest or Name is set, as one of a manifest.
type Pod struct {
	Manifest   string // path of a file or directory; "" for the manifests of the command line
	Kind, Name string // of the object in the manifest; "" for any

	// Namespace, Traits and Annotations change a pod of a manifest as far as they are set.
	Namespace string
	manifest.Traits
	Annotations map[string]string
	Containers  []string
}

// defaultContainer is the name of the container of a pod that has none.
const defaultContainer = "main"

// InManifest reports whether the pod is one of a manifest.
func (p *Pod) InManifest() bool { return p.Manifest != "" || p.Name != "" }

// pod validates the description of a pod.
func (d *podDocument) pod(v *validator, at *field.Path) Pod {
	out := Pod{
		Manifest: d.Manifest, Kind: d.Kind, Name: d.Name, Namespace: d.Namespace, Annotations: d.Annotations,
		Traits: manifest.Traits{Labels: d.Labels, NamespaceLabels: d.NamespaceLabels, QOS: string(d.QOSClass)}, Containers: d.Containers,
	}
	if known := []policy.QOS{policy.Guaranteed, policy.Burstable, policy.BestEffort}; d.QOSClass != "" && !slices.Contains(known, d.QOSClass) {
		v.fail(field.NotSupported(at.Child("qosClass"), d.QOSClass, known))
	}
	keys := manifest.Keys{Domain: annotation.Domain, Kinds: annotation.Kinds()}
	for _, key := range slices.Sorted(maps.Keys(d.Annotations)) { // the same errors each time
		if meant, ok := keys.Meant(key); ok {
			v.fail(field.Invalid(at.Child("annotations").Key(key), field.OmitValueType{}, "no effect (did you mean "+quote.Text(meant)+"?)"))
		}
	}
	if d.Kind != "" && !out.InManifest() {
		v.fail(field.Forbidden(at.Child("kind"), "needs the name of a pod in a manifest"))
	}
	if d.Containers != nil && out.InManifest() {
		v.fail(field.Forbidden(at.Child("containers"), "the manifest has the containers"))
	}
	for i, name := range d.Containers {
		switch at := at.Child("containers").Index(i); {
		case !annotation.IsLabel(name):
			v.fail(field.Invalid(at, name, "must be at most 63 of a-z, 0-9 and -, not starting or ending with -"))
		case slices.Contains(d.Containers[:i], name):
			v.fail(field.Duplicate(at, name))
		}
	}
	return out
}

// Find returns the pod, which is one of set if it is in a manifest. The error describes the objects that there
// are instead of one pod.
func (p *Pod) Find(set *manifest.Set) (*manifest.Pod, error) {
	if !p.InManifest() {
		return p.alone(set), nil
	}
	var names []string
	var found []*manifest.Pod
	for i := range set.Pods {
		m := &set.Pods[i]
		if m.Name != p.Name && !slices.Contains(names, m.Name) {
			names = append(names, m.Name)
		}
		if (p.Name == "" || m.Name == p.Name) && (p.Kind == "" || m.Kind == p.Kind) {
			found = append(found, m)
		}
	}
	if len(found) > 1 && p.Namespace != "" {
		found = slices.DeleteFunc(found, func(m *manifest.Pod) bool { return m.Namespace != p.Namespace })
	}
	switch len(found) {
	case 1:
		return p.changed(found[0], set), nil
	case 0:
		var words []string
		for _, part := range [][2]string{{"kind", p.Kind}, {"name", p.Name}, {"namespace", p.Namespace}} {
			if part[1] != "" {
				words = append(words, part[0], quote.Text(part[1]))
			}
		}
		if len(words) == 0 {
			return nil, errors.New("none")
		}
		if hint := spelling.Hint(p.Name, names...); hint != "" {
			words = append(words, "("+hint+")")
		}
		return nil, errors.New("none with " + strings.Join(words, " "))
	}
	return nil, fmt.Errorf("%d pods and pod templates (write manifest, kind, name and namespace of one)", len(found))
}

// changed returns a pod of a manifest with the changes.
func (p *Pod) changed(m *manifest.Pod, set *manifest.Set) *manifest.Pod {
	out := *m
	if p.Namespace != "" {
		out.Namespace = p.Namespace
	}
	out.NamespaceLabels = set.Namespaces[out.Namespace]
	if p.QOS != "" {
		out.QOS = p.QOS
	}
	out.Labels, out.Annotations = merged(m.Labels, p.Labels), merged(m.Annotations, p.Annotations)
	if p.NamespaceLabels != nil {
		out.NamespaceLabels = merged(out.NamespaceLabels, p.NamespaceLabels)
		out.NamespaceLabels[manifest.NameLabel] = out.Namespace
	}
	return &out
}

func merged(base, changes map[string]string) map[string]string {
	out := map[string]string{}
	maps.Copy(out, base)
	maps.Copy(out, changes)
	return out
}

// alone returns a pod without a manifest. Its containers have no volumes and no resources.
func (p *Pod) alone(set *manifest.Set) *manifest.Pod {
	m := &manifest.Pod{
		Object: manifest.Object{Kind: "Pod", Namespace: "default", Name: "test"},
		Traits: manifest.Traits{QOS: manifest.BestEffort},
	}
	names := p.Containers
	if len(names) == 0 {
		names = []string{defaultContainer}
	}
	for _, name := range names {
		m.Containers = append(m.Containers, manifest.Container{Name: name, Role: manifest.Main})
	}
	return p.changed(m, set)
}
