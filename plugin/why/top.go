package why

import (
	"cmp"
	"errors"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/wait"
	"github.com/nri-blkio/nri-blkio/plugin/runtimeconfig"
	"github.com/nri-blkio/nri-blkio/policy"
)

// Top is what the containers of a node do on each disk, and what they wait for.
type Top struct {
	Seconds float64 `json:"seconds"` // measured
	Rows    []Row   `json:"rows"`
	// Unknown are causes of waiting that this kernel does not tell, with the reasons.
	Unknown []string `json:"unknown"`
}

// Row is a container on a disk. It is a pod as a whole if the pod has a limit of its own there.
type Row struct {
	Subject
	Disk
	// Held is the part of the time in which I/O was held by the limit of the container or of its pod; nil if that is unknown. It is
	// a lower bound where reads and writes are held by turns.
	Held *float64 `json:"held,omitempty"`
	// Others is how many threads waited at a time, in the mean, for something else: the disk, a neighbour, a journal, dirty pages. It is
	// nil if that is unknown.
	Others *float64 `json:"others,omitempty"`
	// Waiting is as in Answer: of all disks together.
	Waiting *float64 `json:"waiting,omitempty"`
}

// Names returns the names of the pod and of the container, which is "" for a pod as a whole. Instead of a name that is not known it returns
// that of the cgroup.
func (r *Row) Names() (pod, container string) {
	dir, _ := split(r.Cgroup)
	if pod = path.Base(dir); r.Pod != "" {
		pod = r.Namespace + "/" + r.Pod
	}
	if r.isWhole() {
		return pod, ""
	}
	return pod, cmp.Or(r.Container, path.Base(r.Cgroup))
}

// used returns the part of the limit that is used the most, 0 without a limit.
func (r *Row) used() float64 {
	if r.Limit == nil {
		return 0
	}
	return r.Limit.Used
}

// IsWaiting reports whether it waits for anything.
func (r *Row) IsWaiting() bool { return max(of(r.Held), of(r.Others), of(r.Waiting)) >= least }

func of(part *float64) float64 {
	if part == nil {
		return 0
	}
	return *part
}

// sortKeys are the values by which rows are sorted, the largest first.
var sortKeys = []struct { // constant
	name  string
	value func(*Row) float64
}{
	{"rate", func(r *Row) float64 { return r.ReadBytes + r.WriteBytes }},
	{"ops", func(r *Row) float64 { return r.ReadOps + r.WriteOps }},
	{"limit", (*Row).used},
	{"held", func(r *Row) float64 { return of(r.Held) }},
	{"others", func(r *Row) float64 { return of(r.Others) }},
	{"pressure", func(r *Row) float64 { return of(r.Waiting) }},
	{"name", func(*Row) float64 { return 0 }},
}

// SortKeys returns the keys that Sort knows.
func SortKeys() (out []string) {
	for _, k := range sortKeys {
		out = append(out, k.name)
	}
	return out
}

// Sort sorts the rows by a key, and those that are equal by name.
func (t *Top) Sort(key string) {
	value := sortKeys[slices.Index(SortKeys(), key)].value
	slices.SortStableFunc(t.Rows, func(a, b Row) int {
		return cmp.Or(cmp.Compare(value(&b), value(&a)), strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Pod, b.Pod),
			strings.Compare(a.Container, b.Container), strings.Compare(a.Disk.Disk, b.Disk.Disk))
	})
}

// ExplainAll computes the rows of all containers with I/O, a limit, or a wait. It is a function of its argument.
func ExplainAll(m Measured) Top {
	out := Top{Seconds: m.Duration.Seconds(), Rows: []Row{}, Unknown: m.unknownCauses()}
	if m.NoWaits != nil {
		out.Unknown = append(out.Unknown, "what I/O and threads wait for: "+m.NoWaits.Error())
	}
	if m.Unread != nil {
		out.Unknown = append(out.Unknown, "some cgroups or records: "+m.Unread.Error())
	}
	all := map[string]*waiter{}
	for _, c := range m.Cgroups {
		if c.isWhole() {
			c.Disks = c.withoutBackstops()
		}
		if !c.isWhole() || len(c.Disks) > 0 {
			all[c.Cgroup] = &waiter{Cgroup: c, ids: map[uint64]bool{}, times: map[wait.Place]wait.Time{}}
		}
	}
	owners := m.addTimes(all)
	for i := range m.Cgroups {
		if w := all[m.Cgroups[i].Cgroup]; w != nil {
			out.Rows = append(out.Rows, m.rows(w, owners)...)
		}
	}
	return out
}

// withoutBackstops returns the disks on which a pod as a whole has a limit. A backstop limits no more than the limits of its containers.
func (c *Cgroup) withoutBackstops() (out []wait.DiskUse) {
	for _, d := range c.Disks {
		for key, limit := range d.Limits {
			if c.Record == nil {
				break
			}
			if s, ok := c.Record.Settings.Get(blkio.Address{Key: blkio.Key(key), Dev: d.Dev}); ok && s.Source.Kind == policy.FromBackstop && s.Amount <= limit { // it is raised with bursts
				d.Limits[key] = blkio.Unset
			}
		}
		if _, _, isLimited := d.Fullest(wait.None); isLimited {
			out = append(out, d)
		}
	}
	return out
}

// waiter is a container, or a pod with limits of its own, with the times of its cgroup and those below.
type waiter struct {
	Cgroup
	ids   map[uint64]bool
	times map[wait.Place]wait.Time
}

// owner has the paths of the cgroups of a pod and of its container.
type owner struct{ pod, container string }

// addTimes adds the times to their waiters. It returns the owners of cgroups by their IDs.
func (m *Measured) addTimes(all map[string]*waiter) map[uint64]owner {
	owners := map[uint64]owner{}
	for id, s := range m.Subjects {
		pod, container := split(s.Cgroup)
		owners[id] = owner{pod, path.Join(pod, container)}
	}
	for at, t := range m.Times.At {
		o := owners[at.Cgroup]
		for _, w := range []*waiter{all[o.pod], all[o.container]} {
			if w != nil {
				w.ids[at.Cgroup], w.times[at] = true, t
			}
		}
	}
	return owners
}

// heldAt is where I/O of a cgroup is held: by a container, or by a pod as a whole.
type heldAt struct {
	op     wait.Op
	cgroup uint64
	dev    blkio.Dev
	by     string
}

// rows returns a row for each disk. A container can wait at a disk where it has no I/O, as for the data of another one. The zero disk is
// an unknown one.
func (m *Measured) rows(w *waiter, owners map[uint64]owner) (out []Row) {
	pod, _ := split(w.Subject.Cgroup)
	isOwn := func(c wait.Cause, by uint64) bool { return c == wait.Limit && owners[by].pod == pod }
	held, others := map[blkio.Dev]float64{}, map[blkio.Dev]float64{}
	seconds := max(m.Times.Duration.Seconds(), 1e-9)
	// crun gives a container two cgroups with the same limits, one in the other, which hold the same I/O by turns.
	byTurns := map[heldAt]float64{}
	for at, t := range w.times {
		if isOwn(at.Cause, at.By) {
			by := heldAt{at.Op, at.Cgroup, at.Dev, owners[at.By].container}
			byTurns[by] += t.Wall.Seconds() / seconds
			held[at.Dev] = max(held[at.Dev], min(1, byTurns[by]))
		}
	}
	times := m.Times
	times.At = w.times
	for _, s := range wait.Explain(times, w.ids, nil) {
		if !isOwn(s.Cause, s.By) {
			others[s.Dev] += s.Time.Seconds() / seconds
		}
	}
	add := func(d *wait.DiskUse) {
		r := Row{Subject: w.Subject, Disk: m.disk(&w.Cgroup, d), Waiting: w.Some}
		if m.NoWaits == nil && m.Unknown[wait.Limit] == nil {
			r.Held = new(held[d.Dev])
		}
		if !m.isGuessed() {
			r.Others = new(others[d.Dev])
		}
		out = append(out, r)
		delete(held, d.Dev)
		delete(others, d.Dev)
	}
	for i := range w.Disks {
		add(&w.Disks[i])
	}
	for _, parts := range []map[blkio.Dev]float64{held, others} {
		for _, dev := range slices.SortedFunc(maps.Keys(parts), blkio.Dev.Compare) {
			if parts[dev] >= least && !w.isWhole() {
				add(&wait.DiskUse{Dev: dev})
			}
		}
	}
	return out
}

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
