package plugin

import (
	"errors"

	"github.com/nri-blkio/nri-blkio/plugin/node"
	"github.com/nri-blkio/nri-blkio/plugin/poddoc"
)

// SetDocument puts what the API server knows about the pod with a UID into force, see node.Node.SetLive. d is nil if that is
// not known any more.
func (p *Plugin) SetDocument(uid string, d *poddoc.Document) {
	if d == nil {
		p.node.SetLive(uid, nil)
		return
	}
	p.node.SetLive(uid, liveOf(d))
}

// liveOf returns the part of a document that the state of the node follows.
func liveOf(d *poddoc.Document) *node.Live {
	live := &node.Live{Namespace: d.Namespace, Name: d.Name, Annotations: d.Annotations, Labels: d.Labels}
	if live.Labels == nil && d.Omitted[poddoc.PartLabels] == "" {
		live.Labels = map[string]string{}
	}
	if cause := d.Omitted[poddoc.PartAnnotations]; cause != "" {
		live.Err = errors.New("too many annotations of this domain: " + cause)
	}
	return live
}
