package podfacts

import "strings"

// Parts are parts of a request.
type Parts uint8

// The parts of a request. The annotations and the labels of the pod are of the author of the pod, and the limits of a claim can be of
// another author. The labels of the namespace are of the administrator.
const (
	Annotations Parts = 1 << iota
	Labels
	Volumes
	Namespace
)

// Has reports whether one of some parts is there.
func (p Parts) Has(some Parts) bool { return p&some != 0 }

// String names the parts for messages.
func (p Parts) String() string { return p.Text("limits of a claim") }

// Text names the parts, with a text for the limits of claims.
func (p Parts) Text(claims string) string {
	var out []string
	for _, one := range []struct {
		part Parts
		text string
	}{{Annotations, "annotations"}, {Labels, "labels"}, {Volumes, claims}} { // of volumes only the limits of claims change
		if p.Has(one.part) {
			out = append(out, one.text)
		}
	}
	return strings.Join(out, " and ")
}
