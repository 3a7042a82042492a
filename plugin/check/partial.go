package check

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/nri-blkio/nri-blkio/plugin/manifest"
	"github.com/nri-blkio/nri-blkio/policy"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
	"github.com/nri-blkio/nri-blkio/policy/quote"
)

// A partial pod is one of an object that is not Kubernetes' own. The object's controller adds containers and mounts that the manifest
// does not have. So a container or a mount that is not in it is unknown, and no error.

// partial adds the errors of a partial pod that depend on no container. It returns true if the manifest has no containers.
func (r *Result) partial(m *manifest.Pod, pol *policy.Pod) bool {
	for _, err := range pol.Check() {
		r.Errors = append(r.Errors, r.positioned(err))
	}
	if len(m.Containers) > 0 {
		return false
	}
	r.Unknown = append(r.Unknown, fmt.Sprintf("the containers, mounts and labels of the pods: %s is read as annotations of a pod, and whether %s copies it to pods is unknown",
		quote.ASCII(r.Template), r.controller()))
	r.tidy()
	return true
}

// controller names the program that completes a partial pod.
func (r *Result) controller() string {
	if r.Kind == "" {
		return "the chart"
	}
	return "the controller of the " + quote.Name(r.Kind, maxKind)
}

// maxKind bounds the name of a kind in a sentence.
const maxKind = 64

// withoutMissing takes those errors out of a decision about a partial pod that a mount causes that the manifest does not have. It
// returns the first error that is left.
func (o *outcome) withoutMissing(d *policy.Desired, err error) error {
	if !o.isPartial {
		return err
	}
	var kept []error
	d.Errors = slices.DeleteFunc(slices.Clone(d.Errors), func(e *annotation.Error) bool {
		if e.Reason == annotation.NoMount {
			o.result.missing(e)
			return true
		}
		kept = append(kept, e)
		return false
	})
	if e := (*annotation.Error)(nil); errors.As(err, &e) && e.Reason == annotation.NoMount {
		return o.pod.Policy.First(kept...)
	}
	return err
}

// missing adds the unknown of an entry whose target is not in the manifest.
func (r *Result) missing(e *annotation.Error) {
	at := r.Position
	at.Line = r.lines[e.From.Annotation]
	line := fmt.Sprintf("%s: %s: entry %d %s: whether %s adds what the entry names",
		at, quote.Name(e.From.Annotation, quote.Most), e.Entry, quote.Text(e.Text), r.controller())
	if !slices.Contains(r.Unknown, line) {
		r.Unknown = append(r.Unknown, line)
	}
}

// unknownContainer reports a container that an annotation names and that the manifest does not have.
func (r *Result) unknownContainer(m *manifest.Pod, req *annotation.Request, name string) {
	if m.IsPartial {
		r.Unknown = append(r.Unknown, fmt.Sprintf("whether %s adds the container %q", r.controller(), name))
		return
	}
	has := "no container"
	if len(m.Containers) > 0 {
		var names []string
		for i := range m.Containers {
			names = append(names, m.Containers[i].Name)
		}
		has = strings.Join(names, ", ")
	}
	text := fmt.Sprintf("unknown container %q in the annotations (the pod has %s)", name, has)
	for _, key := range req.Keys() {
		if _, scope := annotation.CutKey(key); scope == "container."+name && r.lines[key] != 0 {
			at := r.Position
			at.Line = r.lines[key]
			text = at.String() + ": " + key + ": " + text
			break
		}
	}
	r.Errors = append(r.Errors, text)
}
