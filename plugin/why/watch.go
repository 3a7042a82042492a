package why

import (
	"errors"
	"maps"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio/wait"
	"github.com/nri-blkio/nri-blkio/plugin/runtimeconfig"
)

// Watch measures a node again and again. It is not safe for concurrent use.
type Watch struct {
	node     Node
	target   Subject // zero: all pods
	names    *names
	observer Observer // nil: waits are not counted
	noWaits  error    // why
	begin    time.Time
	times    wait.Times
	readings map[string]reading
}

// NewWatch attaches the programs, and begins to measure all pods.
func NewWatch(node Node) (*Watch, error) {
	n, _ := newNames(node.Cgroups, node.Pods) // Next returns the error
	return watch(node, n, Subject{})
}

func watch(node Node, n *names, target Subject) (*Watch, error) {
	w := &Watch{node: node, target: target, names: n}
	if err := w.attach(); err != nil {
		return nil, err
	}
	w.begin, w.readings = time.Now(), readAll(node.Cgroups, n, target)
	return w, nil
}

func (w *Watch) attach() (err error) {
	if w.observer, w.noWaits = w.node.Attach(); w.noWaits != nil {
		w.observer = nil
		return nil
	}
	if w.times, err = w.observer.Read(); err != nil {
		return errors.Join(err, w.Close())
	}
	return nil
}

// Close detaches the programs.
func (w *Watch) Close() (err error) {
	if w.observer != nil {
		err = w.observer.Close()
	}
	w.observer = nil
	return err
}

// Name sets the pods that the runtime has.
func (w *Watch) Name(pods []runtimeconfig.Pod) { w.node.Pods = pods }

// Next returns what was measured since the last call, or since the begin.
func (w *Watch) Next() (Measured, error) {
	now := time.Now()
	m := Measured{Target: w.target, Duration: now.Sub(w.begin), NoWaits: w.noWaits}
	if w.observer != nil {
		times, err := w.observer.Read()
		if err != nil {
			return Measured{}, err
		}
		m.Times, w.times, m.Unknown = times.Since(w.times), times, w.observer.Unknown()
	}
	// Containers that began or ended meanwhile have names too. What cannot be read now is as it was before.
	later, err := newNames(w.node.Cgroups, w.node.Pods)
	m.Unread = err
	n := w.names
	maps.Copy(n.paths, later.paths)
	maps.Copy(n.ended, later.ended)
	maps.Copy(n.records, later.records)
	maps.Copy(n.pods, later.pods)
	readings := readAll(w.node.Cgroups, n, w.target)
	m.compare(w.node, n, w.readings, readings)
	m.noteBtrfs(w.node)
	w.begin, w.readings, w.names = now, readings, later
	if m.Times.Full && w.target == (Subject{}) { // of cgroups that have ended; other losses would only be more without the programs
		return m, errors.Join(w.Close(), w.attach())
	}
	return m, nil
}
