package policy

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// SourceKind is the kind of a Source.
type SourceKind uint8

// The kinds of a Source. Their order is their precedence: the earlier one wins.
const (
	FromAnnotation SourceKind = iota + 1
	FromClaim
	FromDriver // the storage driver has written limits for a claim
	FromClass
	FromRule
	FromBackstop // the sum of the limits of the pod's containers
)

var sourceKinds = [...]string{
	FromAnnotation: "annotation", FromClaim: "claim", FromDriver: "driver", FromClass: "class", FromRule: "rule", FromBackstop: "backstop",
}

// String returns the name of the kind in records. It is "" for the zero value.
func (k SourceKind) String() string { return sourceKinds[k] }

// ParseSourceKind is the inverse of String.
func ParseSourceKind(s string) (SourceKind, bool) {
	i := slices.Index(sourceKinds[:], s)
	return SourceKind(max(i, 0)), i >= 0
}

// Source identifies where a value comes from, such as an annotation and its entry. Sources
// are comparable with ==.
type Source struct {
	Kind SourceKind
	// Name is the annotation's full key, or the name of the claim or class. Of a class that a rule
	// or a claim names it is RULE/CLASS or CLAIM/CLASS, of a storage driver CLAIM/DRIVER, and for a field of the policy its path.
	Name  string
	Entry int // 1-based, of an annotation; 0 for a value without entries, such as a weight
	// IsStar is true if the target is "*". Target is the target as the user wrote it, cut
	// to 64 bytes; only its kind is read.
	IsStar bool
	Target string
}

// namesVolume reports whether a value is of an entry that names a volume of the pod, which can be unknown.
func (s Source) namesVolume() bool { return strings.HasPrefix(s.Target, "@") }

// backstopText stands for the backstop where people expect the name of an annotation.
const backstopText = "backstop: the sum of the containers' limits"

// ruleName returns the Name of a class that a rule names.
func ruleName(rule, class string) string { return rule + "/" + class }

// claimName returns the Name of the limits of a claim, by its annotation or by a class or a storage driver.
func claimName(claim, by string) string {
	if by == "" {
		return claim
	}
	return claim + "/" + by
}

func (s Source) isOfClaim() bool { return s.Kind == FromClaim || s.Kind == FromDriver }

// Origin returns what has asked for the value. The source of a backstop has none.
func (s Source) Origin() annotation.Origin {
	first, class, ok := strings.Cut(s.Name, "/")
	switch {
	case s.Kind == FromAnnotation:
		return annotation.Origin{Annotation: s.Name}
	case s.Kind == FromClaim:
		return annotation.Origin{Claim: first, Class: class}
	case s.Kind == FromDriver:
		return annotation.Origin{Claim: first, Driver: class}
	case s.Kind == FromClass:
		return annotation.Origin{Class: s.Name}
	case s.Kind == FromRule && ok:
		return annotation.Origin{Rule: first, Class: class}
	}
	return annotation.Origin{Field: s.Name}
}

// Text returns the name of the origin, or a text for the backstop.
func (s Source) Text() string {
	if s.Kind == FromBackstop {
		return backstopText
	}
	return s.Origin().String()
}

// String returns Text without the domain, and the number of the entry: "limits/container.db
// #1".
func (s Source) String() string {
	text := strings.Replace(s.Text(), "."+annotation.Domain+"/", "/", 1)
	if s.Entry > 0 {
		text += fmt.Sprintf(" #%d", s.Entry)
	}
	return text
}

// MarshalJSON encodes the source for reports, without its kind.
func (s Source) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Annotation string `json:"annotation"`
		Entry      int    `json:"entry"`
		Target     string `json:"target"`
	}{s.Text(), s.Entry, s.Target})
}
