package repair

import (
	"cmp"
	"errors"
	"path"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin"
)

// domain is whose limits a write runs under: two cgroups are in the same one on a
// filesystem if the same limits hold for both there. What a domain's cgroups write
// is to be charged to one of them.
type domain struct {
	// cgroup is the path of the nearest one, upwards, that has a limit on writes;
	// "" if none has.
	cgroup string
	// dead is the number of a cgroup that is gone, which limits it took with it or
	// not; else 0.
	dead uint64
}

// subject is a cgroup with a limit on writes, by its record.
type subject struct {
	Who
	limits map[blkio.Dev]blkio.Limits
}

// Who names a container, or with an empty Container a pod.
type Who struct {
	Namespace string `json:"namespace,omitempty"`
	Pod       string `json:"pod,omitempty"`
	Container string `json:"container,omitempty"`
}

// String is "namespace/pod container".
func (w Who) String() string {
	switch {
	case w.Pod == "":
		return ""
	case w.Container == "":
		return w.Namespace + "/" + w.Pod
	}
	return w.Namespace + "/" + w.Pod + " " + w.Container
}

// domains knows the limits of the node.
type domains struct {
	cgroups  *blkio.Hierarchy
	subjects map[string]subject // by path
	// ended are cgroups that are gone and had limits: of containers of which a
	// record has the end, and those that were seen while they were there.
	ended map[uint64]Who
	seen  map[uint64]Who // of these, the living
	paths map[uint64]place
	// known are the cgroups that have been looked up since the records were read;
	// news: one is there that was not before that.
	known, before map[uint64]bool
	news          bool
}

// place is where a cgroup was found: for a moment, since it may go.
type place struct {
	path string
	gone bool
}

// maxSeen is how many cgroups are remembered beyond their end.
const maxSeen = 1 << 13

func newDomains(cgroups *blkio.Hierarchy) *domains {
	return &domains{
		cgroups: cgroups, subjects: map[string]subject{},
		ended: map[uint64]Who{}, seen: map[uint64]Who{}, paths: map[uint64]place{}, known: map[uint64]bool{},
	}
}

// refresh reads the records. An error is of one or some of them.
func (d *domains) refresh() error {
	subjects := map[string]subject{}
	if len(d.ended) > maxSeen {
		clear(d.ended)
	}
	var bad error
	err := d.cgroups.Walk(plugin.RecordXattr, func(c blkio.Cgroup, _ []byte) error {
		r, err := plugin.ReadRecord(c)
		if err != nil || r == nil {
			if !errors.Is(err, blkio.ErrGone) {
				bad = err
			}
			return nil
		}
		who := Who{r.Namespace, r.Pod, r.Container}
		for i := range r.Exits {
			for _, id := range r.Exits[i].CgroupIDs {
				d.ended[id] = Who{r.Namespace, r.Pod, r.Exits[i].Container}
			}
		}
		if limits := writeLimits(r.DevLimits()); len(limits) > 0 && !r.Cleared {
			subjects[c.Path()] = subject{who, limits}
		}
		return nil
	})
	d.subjects = subjects
	d.before, d.known, d.news = d.known, map[uint64]bool{}, false
	return errors.Join(err, bad)
}

// writeLimits are those that concern writes, without those that are no limits.
func writeLimits(all map[blkio.Dev]blkio.Limits) map[blkio.Dev]blkio.Limits {
	out := map[blkio.Dev]blkio.Limits{}
	for dev, l := range all {
		if w := writes(l); !w.IsZero() {
			out[dev] = w
		}
	}
	return out
}

func writes(l blkio.Limits) blkio.Limits {
	var out blkio.Limits
	for _, k := range []blkio.Key{blkio.Wbps, blkio.Wiops} {
		if l[k] != blkio.Max {
			out[k] = l[k]
		}
	}
	return out
}

// moment forgets where cgroups are: until the next one each is looked up once.
func (d *domains) moment() {
	clear(d.paths)
	if len(d.seen) > maxSeen {
		clear(d.seen)
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
		if who, ok := d.seen[id]; ok {
			d.ended[id] = who
			delete(d.seen, id)
		}
	case err == nil:
		at.path = c.Path()
	}
	d.paths[id] = at
	if !at.gone && !d.known[id] {
		d.known[id] = true
		d.news = d.news || !d.before[id]
	}
	return at
}

// of is the domain of a cgroup on a filesystem.
func (d *domains) of(id uint64, fs *filesystem) domain {
	at := d.find(id)
	if at.gone {
		return domain{dead: id}
	}
	for p := at.path; p != "" && p != "."; p = path.Dir(p) {
		if s, ok := d.subjects[p]; ok && s.limitsWrites(fs) {
			d.seen[id] = s.Who
			return domain{cgroup: p}
		}
	}
	return domain{}
}

func (s *subject) limitsWrites(fs *filesystem) bool {
	for _, disk := range fs.disks {
		if _, ok := s.limits[disk]; ok {
			return true
		}
	}
	return false
}

// limited says that writes of a domain are limited, as far as is known of a dead
// one.
func (d *domains) limited(of domain) bool {
	_, ended := d.ended[of.dead]
	return of.cgroup != "" || ended
}

// stricter says that one domain may write less than another on a filesystem.
func (d *domains) stricter(a, b domain, fs *filesystem) bool {
	x, y := d.rates(a, fs), d.rates(b, fs)
	if x[blkio.Wbps] != y[blkio.Wbps] {
		return x[blkio.Wbps] < y[blkio.Wbps]
	}
	return x[blkio.Wiops] < y[blkio.Wiops]
}

// rates are the smallest limits that hold for a domain.
func (d *domains) rates(of domain, fs *filesystem) blkio.Limits {
	out := blkio.Limits{blkio.Wbps: blkio.Max, blkio.Wiops: blkio.Max}
	for p := of.cgroup; p != "" && p != "."; p = path.Dir(p) {
		for _, disk := range fs.disks {
			for k, rate := range d.subjects[p].limits[disk] {
				if rate != blkio.Unset {
					out[k] = min(out[k], rate)
				}
			}
		}
	}
	return out
}

// who names the container or pod of a cgroup, as far as that is known, and the
// cgroup where no record does.
func (d *domains) who(id uint64) Party {
	out := Party{CgroupID: id}
	at := d.find(id)
	if at.gone {
		out.Who, out.Gone = d.ended[id], true
		return out
	}
	out.Cgroup = at.path
	for p := at.path; p != "" && p != "."; p = path.Dir(p) {
		if s, ok := d.subjects[p]; ok {
			out.Who = s.Who
			break
		}
	}
	return out
}

// Party is a cgroup that writes to a file, or owns it.
type Party struct {
	Who
	CgroupID uint64 `json:"cgroupID"`
	Cgroup   string `json:"cgroup,omitempty"` // below the cgroup root
	Gone     bool   `json:"gone,omitempty"`   // it has been removed
}

// String is for tables.
func (p Party) String() string {
	name := cmp.Or(p.Who.String(), p.Cgroup)
	switch {
	case p.CgroupID == 0:
		return "none"
	case p.Gone && p.Pod == "":
		return "gone"
	case p.Gone:
		return name + " (ended)"
	}
	return name
}

// disks are those that some domain has a limit on.
func (d *domains) disks() map[blkio.Dev]bool {
	out := map[blkio.Dev]bool{}
	for _, s := range d.subjects {
		for dev := range s.limits {
			out[dev] = true
		}
	}
	return out
}

// pathsOf are the cgroups of numbers, of those that are there.
func (d *domains) pathsOf(ids []uint64) []string {
	var out []string
	for _, id := range ids {
		if at := d.find(id); at.path != "" {
			out = append(out, at.path)
		}
	}
	return out
}
