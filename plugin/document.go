package plugin

import (
	"errors"

	"github.com/nri-blkio/nri-blkio/plugin/node"
	"github.com/nri-blkio/nri-blkio/plugin/poddoc"
)

// setDocument puts what the API server knows about the pod with a UID into force, see node.Node.SetLive. d is nil if that is
// not known any more.
func (p *Plugin) setDocument(uid string, d *poddoc.Document) {
	if d == nil {
		p.node.SetLive(uid, nil)
		return
	}
	p.node.SetLive(uid, liveOf(d))
}

// liveOf returns the part of a document that the state of the node follows.
func liveOf(d *poddoc.Document) *node.Live {
	if d.Omitted[poddoc.PartAnnotations] == poddoc.NotRead {
		return &node.Live{Namespace: d.Namespace, Name: d.Name, NamespaceLabels: d.NamespaceLabels, OnlyNamespace: true}
	}
	live := &node.Live{Namespace: d.Namespace, Name: d.Name, Annotations: d.Annotations, Labels: d.Labels, Claims: claimsOf(d)}
	if live.Labels == nil && d.Omitted[poddoc.PartLabels] == "" {
		live.Labels = map[string]string{}
	}
	// Each namespace has a label with its name. One without labels is not known yet, or is gone.
	live.NamespaceLabels = d.NamespaceLabels
	if cause := d.Omitted[poddoc.PartAnnotations]; cause != "" {
		live.Err, live.CanBeKnown = errors.New("too many annotations of this domain: "+cause), poddoc.FitsAnnotations
	}
	return live
}
