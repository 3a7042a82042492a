package repair

import (
	"cmp"
	"errors"
	"hash/maphash"
	"path"
	"slices"
	"strings"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/plugin/record"
	"github.com/nri-blkio/nri-blkio/policy"
)

// domain is a set of cgroups with the same limits on a filesystem: a cgroup with a limit on
// writes, and its descendants without one. A file is right if its owner and its writer are
// in one domain.
type domain struct {
	// cgroup is the path of the cgroup with the limit. It is "" for all cgroups without a
	// limit.
	cgroup string
	// removed is the ID of a removed cgroup. Such a cgroup is a domain of its own, because its limits cannot be
	// changed any more. The ID is 0 for other domains.
	removed uint64
}

// subject is a cgroup with a limit on writes, by its record.
type subject struct {
	*reading
	id uint64
}

// ContainerName names a container. If Container is empty, it names a pod.
type ContainerName struct {
	Namespace string `json:"namespace,omitempty"`
	Pod       string `json:"pod,omitempty"`
	Container string `json:"container,omitempty"`
}

// String returns "NAMESPACE/POD CONTAINER", without empty parts.
func (w ContainerName) String() string {
	switch {
	case w.Pod == "":
		return ""
	case w.Container == "":
		return w.Namespace + "/" + w.Pod
	}
	return w.Namespace + "/" + w.Pod + " " + w.Container
}

// Cgroups finds cgroups and their records. It is a *cgroupfs.Hierarchy.
type Cgroups interface {
	Walk(xattr string, fn func(cgroupfs.Cgroup, cgroupfs.Attribute) error) error
	ByID(id uint64) (cgroupfs.Cgroup, error)
	Cgroup(path string) cgroupfs.Cgroup
}

// domains has the limits of the node's cgroups.
type domains struct {
	cgroups  Cgroups
	seed     maphash.Seed
	readings map[string]*reading // of all records, by path
	subjects map[string]subject  // by path
	// ended are the containers that a record lists as ended, by the IDs of their cgroups.
	ended map[uint64]ContainerName
	// seen holds the places of cgroups, and the limits that they were under, from the
	// time before they were removed.
	seen  map[uint64]origin
	paths map[uint64]place
	// known has the IDs of the cgroups that were searched for. news is true if one of them was found after the
	// records were read; refresh sets it to false.
	known map[uint64]bool
	news  bool
	// observed is true if limits count that are only observed, not enforced.
	observed bool
}

// origin is the place of a cgroup before its removal: in the subject at a path, if that
// still has the same cgroup ID. The path is "" if no limit held for it.
type origin struct {
	ContainerName
	path    string
	id      uint64
	account account
}

// place is the place of a cgroup at one moment, since it may be removed.
type place struct {
	path          string
	gone, unknown bool
}

// maxSeen is how many cgroups are remembered, of each kind.
const maxSeen = 1 << 14

func newDomains(cgroups Cgroups) *domains {
	return &domains{
		cgroups: cgroups, seed: maphash.MakeSeed(), subjects: map[string]subject{},
		ended: map[uint64]ContainerName{}, seen: map[uint64]origin{}, paths: map[uint64]place{}, known: map[uint64]bool{},
	}
}

// refresh reads the records. Its error may be that of one record. If the records could
// not all be found, the limits stay as they were.
func (d *domains) refresh() error {
	readings, subjects := make(map[string]*reading, len(d.readings)), make(map[string]subject, len(d.subjects))
	ended := map[uint64]ContainerName{}
	var bad error
	err := d.cgroups.Walk(record.Xattr, func(c cgroupfs.Cgroup, a cgroupfs.Attribute) error {
		r, err := d.read(c, a)
		if err != nil {
			bad = err
		}
		if r == nil {
			return nil
		}
		readings[c.Path()] = r
		for _, exit := range r.exits {
			for _, id := range exit.CgroupIDs {
				ended[id] = ContainerName{r.Namespace, r.Pod, exit.Container}
			}
		}
		if len(r.limits) > 0 && (!r.observed || d.observed) {
			subjects[c.Path()] = subject{r, a.ID}
		}
		return nil
	})
	if err != nil {
		return err
	}
	d.readings, d.subjects, d.ended, d.news = readings, subjects, ended, false
	return bad
}

// forgetPlaces forgets the places of cgroups. Each is searched for once until the next call.
func (d *domains) forgetPlaces() {
	clear(d.paths)
	shorten(d.seen)
	shorten(d.known)
}

// shorten removes entries until maxSeen are left.
func shorten[V any](m map[uint64]V) {
	for id := range m {
		if len(m) <= maxSeen {
			return
		}
		delete(m, id)
	}
}

func (d *domains) find(id uint64) place {
	at, ok := d.paths[id]
	if ok {
		return at
	}
	c, err := d.cgroups.ByID(id)
	switch {
	case errors.Is(err, blkio.ErrGone):
		at.gone = true
	case err != nil:
		at.unknown = true
	default:
		at.path = c.Path()
	}
	d.paths[id] = at
	if at.path != "" && !d.known[id] {
		d.known[id], d.news = true, true
	}
	return at
}

// of returns the domain of a cgroup on a filesystem.
func (d *domains) of(id uint64, fs *filesystem) domain {
	at := d.find(id)
	if at.gone {
		// The files of a cgroup below a container's are under the container's limit as
		// long as the container exists.
		was, ok := d.seen[id]
		if s := d.subjects[was.path]; ok && s.id == was.id && was.id != id {
			return domain{cgroup: was.path}
		}
		return domain{removed: id}
	}
	for p := at.path; p != "" && p != "."; p = path.Dir(p) {
		if s, ok := d.subjects[p]; ok && s.limits.LimitWritesTo(fs.disks) {
			d.seen[id] = origin{s.ContainerName, p, s.id, accountOf(at.path)}
			return domain{cgroup: p}
		}
	}
	if _, known := d.seen[id]; !known && !d.news { // with news its record may not have been read
		d.seen[id] = origin{account: accountOf(at.path)}
	}
	return domain{}
}

// accountOf returns the account of a cgroup: its pod, or outside of pods a unit of the
// node (system.slice/foo.service). A container or a user may have made cgroups below.
func accountOf(cgroup string) account {
	if uid := cgroupfs.PodUID(cgroup); uid != "" {
		return account(uid)
	}
	parts := strings.SplitN(cgroup, "/", 3)
	return account(path.Join(parts[:min(len(parts), 2)]...))
}

// account returns the account of a cgroup, "" if it was removed before it was seen.
func (d *domains) account(id uint64) account {
	if at := d.find(id); at.path != "" {
		return accountOf(at.path)
	}
	return d.seen[id].account
}

// live reports whether a domain's cgroups can write, or have a limit.
func (d *domains) live(of domain) bool {
	_, there := d.subjects[of.cgroup]
	return of.removed == 0 && (of.cgroup == "" || there)
}

// limited reports whether writes of a domain are limited. A removed cgroup took its limits with it. It counts
// as limited if it may have had limits, as after a restart of this process. Otherwise a limit that cannot be
// lifted could throttle the writers of its files.
func (d *domains) limited(of domain) bool {
	if of.removed == 0 {
		return of.cgroup != ""
	}
	_, ended := d.ended[of.removed]
	was, seen := d.seen[of.removed]
	return ended || !seen || was.path != ""
}

// stricter reports whether one domain may write less than another on a filesystem.
func (d *domains) stricter(a, b domain, fs *filesystem) bool {
	x, y := d.rates(a, fs), d.rates(b, fs)
	if x[blkio.Wbps] != y[blkio.Wbps] {
		return x[blkio.Wbps] < y[blkio.Wbps]
	}
	return x[blkio.Wiops] < y[blkio.Wiops]
}

// rates returns the smallest limits that hold for a domain.
func (d *domains) rates(of domain, fs *filesystem) blkio.Limits {
	out := blkio.Limits{blkio.Wbps: blkio.Max, blkio.Wiops: blkio.Max}
	for p := of.cgroup; p != "" && p != "."; p = path.Dir(p) {
		s, ok := d.subjects[p]
		if !ok {
			continue
		}
		for _, l := range s.limits {
			if slices.Contains(fs.disks, l.Dev) {
				out[l.Key] = min(out[l.Key], l.Amount)
			}
		}
	}
	return out
}

// participant returns the container or pod of a cgroup, as far as it is known, and the
// path of the cgroup, for cgroups without a record.
func (d *domains) participant(id uint64) NamedCgroup {
	out := NamedCgroup{CgroupID: id}
	at := d.find(id)
	if at.gone {
		out.ContainerName, out.Removed = d.ended[id], true
		if was, ok := d.seen[id]; ok && out.Pod == "" {
			out.ContainerName = was.ContainerName
		}
		return out
	}
	out.Cgroup = at.path
	for p := at.path; p != "" && p != "."; p = path.Dir(p) {
		if s, ok := d.subjects[p]; ok {
			out.ContainerName = s.ContainerName
			break
		}
	}
	return out
}

// NamedCgroup is a cgroup, and the container or pod that it belongs to.
type NamedCgroup struct {
	ContainerName
	CgroupID uint64 `json:"cgroupID"`
	Cgroup   string `json:"cgroup,omitempty"` // path below the cgroup root
	Removed  bool   `json:"gone,omitempty"`
}

// String returns a name for tables.
func (p NamedCgroup) String() string {
	name := cmp.Or(p.ContainerName.String(), p.Cgroup)
	switch {
	case p.CgroupID == 0:
		return "none"
	case p.Removed && p.Pod == "":
		return "gone"
	case p.Removed:
		return name + " (ended)"
	}
	return name
}

func (d *domains) disks() map[blkio.Dev]bool {
	out := map[blkio.Dev]bool{}
	for _, s := range d.subjects {
		for _, l := range s.limits {
			out[l.Dev] = true
		}
	}
	return out
}

// pathsOf returns the paths of cgroup IDs, of those that exist.
func (d *domains) pathsOf(ids []uint64) []string {
	var out []string
	for _, id := range ids {
		if at := d.find(id); at.path != "" {
			out = append(out, at.path)
		}
	}
	return out
}

// reading is a decoded record. Records are read every second or so, and rarely change. Decoding takes 15 us and
// 5 KB of garbage, so a record is decoded only if its text has changed.
type reading struct {
	sum uint64 // of the text
	ContainerName
	limits   policy.Settings // on writes; a cleared record has none
	observed bool
	exits    []record.Exit
}

// read returns the reading of a record, or nil if the record is missing or invalid.
func (d *domains) read(c cgroupfs.Cgroup, a cgroupfs.Attribute) (*reading, error) {
	if record.IsForeign(a.Owner) {
		return newReading(ownedByItself(c)), nil
	}
	sum := maphash.Bytes(d.seed, a.Value)
	if known := d.readings[c.Path()]; known != nil && known.sum == sum {
		return known, nil
	}
	record, err := record.ParseAttribute(a)
	if err != nil || record == nil {
		return nil, err
	}
	r := newReading(record)
	r.sum = sum
	return r, nil
}

func newReading(r *record.Record) *reading {
	out := &reading{
		ContainerName: ContainerName{r.Namespace, r.Pod, r.Container}, observed: r.Observed,
		exits: r.Exits,
	}
	if !r.Cleared {
		out.limits = r.Settings.WriteLimits()
	}
	return out
}

// ownedByItself returns a record made from io.max, for a container that may write its own
// record: it may not write io.max.
func ownedByItself(c cgroupfs.Cgroup) *record.Record {
	out := &record.Record{Kind: record.KindContainer}
	values, err := c.ReadValues(blkio.IOMax)
	if err != nil {
		return out
	}
	for _, v := range values.Sorted() {
		out.Settings = append(out.Settings, policy.Setting{Value: v})
	}
	return out
}
