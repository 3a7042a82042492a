// Package contested notes the contested files in the report of the writeback part as events of the pods that write them.
//
// The writeback part knows cgroups, and the limits part the pods of the node, also those without limits. A file can be shared
// by tenants. So the event of a pod names no other pod, and it has the name of the file only if all that take part in it are
// pods of one namespace: another tenant may have chosen the name.
package contested

import (
	"context"
	"fmt"
	"path"
	"slices"
	"time"

	"github.com/nri-blkio/nri-blkio/plugin/podevent"
	"github.com/nri-blkio/nri-blkio/plugin/reminder"
	"github.com/nri-blkio/nri-blkio/plugin/repair"
	"github.com/nri-blkio/nri-blkio/policy/quote"
)

const (
	// interval is the time between two looks at the report.
	interval = 30 * time.Second
	// maxFiles bounds the files for which a pod has events, so that they do not displace its other events.
	maxFiles = 4
)

// Config is the configuration of a Watch.
type Config struct {
	// Report reads the report of the writeback part. It returns nil if that part does not run.
	Report func() (*repair.Report, error)
	// Pods returns the pods of the node by the paths of their cgroups.
	Pods func() map[string]podevent.Pod
	Note func(of podevent.Pod, reason podevent.Reason, key podevent.Key, note string)
}

// Watch reads the report again and again.
type Watch struct {
	Config
	noted map[about]time.Time // when each event that lasts was last noted
}

// about identifies an event without its reason.
type about struct {
	of  podevent.Pod
	key podevent.Key
}

// event is an event without its reason.
type event struct {
	about
	note string
}

// New returns a watch that has read nothing.
func New(c Config) *Watch { return &Watch{Config: c, noted: map[about]time.Time{}} }

// Run reads until ctx ends.
func (w *Watch) Run(ctx context.Context) { reminder.Every(ctx, interval, w.look) }

// look notes the files that are contested now: once, and again every ten minutes. A report that cannot be read is that of
// another version; status shows the error.
func (w *Watch) look(now time.Time) {
	report, err := w.Report()
	if err != nil || report == nil {
		return
	}
	lasting, files := map[about]time.Time{}, map[podevent.Pod]int{}
	var pods map[string]podevent.Pod
	for i := range report.Files {
		f := &report.Files[i]
		if f.State != repair.StateContested {
			continue
		}
		if pods == nil {
			pods = w.Pods()
		}
		for _, e := range events(f, pods) {
			at, known := w.noted[e.about]
			if files[e.of]++; files[e.of] > maxFiles {
				continue
			}
			if !known || now.Sub(at) >= reminder.Interval {
				w.Note(e.of, podevent.ContestedFile, e.key, e.note)
				at = now
			}
			lasting[e.about] = at
		}
	}
	w.noted = lasting
}

// party is a writer of a file, or its owner.
type party struct {
	*repair.NamedCgroup
	pod podevent.Pod // zero if it is not known
}

func (p *party) isPod() bool { return p.pod != podevent.Pod{} }

func events(f *repair.File, pods map[string]podevent.Pod) (out []event) {
	owner := party{&f.Owner, podAt(f.Owner.Cgroup, pods)}
	parties := []party{owner}
	for i := range f.Writers {
		w := &f.Writers[i].NamedCgroup
		parties = append(parties, party{w, podAt(w.Cgroup, pods)})
	}
	name := fmt.Sprintf("file with inode %d", f.Inode)
	isOther := func(p party) bool { return p.pod.Namespace != owner.pod.Namespace }
	if f.Path != "" && owner.isPod() && !slices.ContainsFunc(parties, isOther) {
		name = fmt.Sprintf("file %s (inode %d)", quote.Text(path.Base(f.Path)), f.Inode)
	}
	seen := map[podevent.Pod]bool{}
	for i := range parties {
		p := &parties[i]
		if !p.isPod() || seen[p.pod] {
			continue
		}
		seen[p.pod] = true
		others, by := othersOf(p, parties), ownerFor(p, &owner)
		out = append(out, event{
			about{p.pod, podevent.KeyOf(name, others, by)},
			name + " is written by " + others + " with other limits as well: all its buffered writes count for " + by,
		})
	}
	return out
}

// othersOf names those that write the file beside a pod, for an event of the pod.
func othersOf(p *party, parties []party) string {
	other := "another container of the pod"
	for i := range parties {
		switch q := &parties[i]; {
		case q.pod == p.pod:
		case q.isPod():
			return "another pod"
		default:
			other = "a process outside of the pod"
		}
	}
	return other
}

// ownerFor names the owner of the file for an event of a pod.
func ownerFor(p, owner *party) string {
	switch {
	case owner.pod == p.pod && owner.Container != "":
		return "container " + quote.Name(owner.Container, quote.Most)
	case owner.pod == p.pod:
		return "this pod"
	case owner.isPod():
		return "the other pod"
	case owner.Removed:
		return "a container that has ended"
	}
	return "that process"
}

func podAt(cgroup string, pods map[string]podevent.Pod) podevent.Pod {
	for ; cgroup != "" && cgroup != "." && cgroup != "/"; cgroup = path.Dir(cgroup) {
		if pod, found := pods[cgroup]; found {
			return pod
		}
	}
	return podevent.Pod{}
}
