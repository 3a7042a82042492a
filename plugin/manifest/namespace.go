package manifest

import (
	"strings"

	"github.com/nri-blkio/nri-blkio/policy/quote"
)

// NameLabel is a label with its name that the API server gives each namespace.
const NameLabel = "kubernetes.io/metadata.name"

// isNamespace reports whether an object is a namespace.
func (d *document) isNamespace(v value) bool {
	return d.object.Kind == "Namespace" && !strings.Contains(v.field("apiVersion").text(), "/")
}

// namespace reads a Namespace.
func (d *document) namespace(v value) {
	labels := v.labels()
	if labels == nil {
		labels = map[string]string{}
	}
	labels[NameLabel] = d.object.Name
	d.set.addNamespace(d.object.Name, labels)
}

// labels returns the labels of an object or of a template, nil for none.
func (v value) labels() (out map[string]string) {
	for _, label := range v.field("metadata", "labels").pairs() {
		if out == nil {
			out = map[string]string{}
		}
		out[label.key.Value] = v.at(label.value, child(v.path, "metadata").Child("labels").Key(quote.Clip(label.key.Value, maxKey))).text()
	}
	return out
}

func (s *Set) addNamespace(name string, labels map[string]string) {
	if s.Namespaces == nil {
		s.Namespaces = map[string]map[string]string{}
	}
	s.Namespaces[name] = labels
}
