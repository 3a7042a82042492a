package policy

import (
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/nri-blkio/nri-blkio/policy/annotation"
	"github.com/nri-blkio/nri-blkio/policy/strict"
)

const (
	apiVersion = annotation.Domain + "/v1alpha1"
	fileKind   = "NodePolicy"
)

// ParseFile parses a node policy. The doc comments of its fields are those of document, and deploy/policy.yaml is an example.
//
// A field that is left out has the value of Default, where dirtyGuard is 0. A list of
// handlers replaces the default list. Decoding is strict: it is an error if a field is
// unknown, occurs twice, has no value, or has a name in another case, and if a second
// document follows. The error names the line and the path of each wrong field.
func ParseFile(data []byte) (*Policy, error) {
	p, err := parseFile(data)
	if err != nil {
		return nil, fmt.Errorf("parse policy: %w", err)
	}
	return p, nil
}

func parseFile(data []byte) (*Policy, error) {
	d := newDocument(Default())
	unknown, err := strict.Decode(data, d)
	if err != nil {
		return nil, err
	}
	if d.Kind == "" && slices.ContainsFunc(unknown, func(e *field.Error) bool { return e.Field == "policyFile" || e.Field == "image" }) {
		return nil, errors.New("this is a file of Helm values (write the policy in a file of its own, for --set-file policyFile=policy.yaml)")
	}
	p, errs := d.policy()
	return p, strict.Join(data, append(unknown, errs...))
}
