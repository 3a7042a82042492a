package why

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/wait"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// The causes of an answer, by which programs know them.
const (
	OwnLimit       = "own-limit"       // io.max of the container
	PodLimit       = "pod-limit"       // io.max of its pod
	OtherLimit     = "other-limit"     // io.max of a cgroup above the pod
	Weight         = "share"           // io.cost: its share of the disk is used up
	DirtyOfNode    = "dirty-node"      // the node has too many dirty pages
	DirtyOfCgroup  = "dirty-cgroup"    // the container has too many for its memory
	Journal        = "journal"         // a commit of the filesystem
	OtherOwner     = "other-owner"     // its file's data is queued for another container
	Predecessor    = "predecessor"     // the same, and that container has ended
	BusyDisk       = "busy-disk"       // the disk, or its queue
	Unattributed   = "unattributed"    // I/O, and nothing tells where it was
	NothingOfDisks = "nothing-of-disk" // it does not wait for I/O
)

// Answer is why a pod, or a container, waits.
type Answer struct {
	Subject
	Seconds float64 `json:"seconds"` // measured
	// Threads is the number of threads that waited for I/O at a time, in the mean; 0 without BPF.
	Threads float64 `json:"threads"`
	// Waiting is the part of the time in which some thread waited for I/O, by the kernel's pressure stall information; nil if
	// it has none. Of a thread that waits on one CPU after another it shows a part only.
	Waiting *float64 `json:"waiting,omitempty"`
	Cause   string   `json:"cause"` // the first one's
	Text    string   `json:"text"`  // the answer in one line
	Causes  []Cause  `json:"causes"`
	Disks   []Disk   `json:"disks"` // used by the target
	// Unknown are causes that this kernel does not tell, with the reasons.
	Unknown []string `json:"unknown"`
}

// Cause is a part of the time that threads waited for I/O.
type Cause struct {
	Cause string  `json:"cause"`
	Part  float64 `json:"part"`
	Disk  string  `json:"disk,omitempty"`
	// Who is the container or pod whose limit, data or I/O it is. It is not set if it is the target.
	Who    *Subject `json:"who,omitempty"`
	Limit  *Limit   `json:"limit,omitempty"`
	Beside []User   `json:"beside,omitempty"` // who else uses the disk, the most first
	Text   string   `json:"text"`
	Do     string   `json:"do"`
}

// Limit is a limit in force.
type Limit struct {
	Key   string  `json:"key"`
	Value string  `json:"value"`
	Used  float64 `json:"used"` // part of it
	// From is the annotation, class or rule that it is from; "" if this program has not set it.
	From string `json:"from,omitempty"`
}

// User is a pod that uses a disk.
type User struct {
	Subject
	Part float64 `json:"part"` // of the time that requests were at the device, or of the bytes if that is unknown
}

// Disk is the target's use of a disk.
type Disk struct {
	Disk       string  `json:"disk"`
	ReadBytes  float64 `json:"readBytes"` // per second
	WriteBytes float64 `json:"writeBytes"`
	ReadOps    float64 `json:"readOps"`
	WriteOps   float64 `json:"writeOps"`
	Limit      *Limit  `json:"limit,omitempty"` // the one that is used the most
}

// least is the part of the time below which a wait is no answer.
const least = 0.01

// Explain computes the answer. It is a function of its argument.
func Explain(m Measured) Answer {
	a := Answer{Subject: m.Target, Seconds: m.Duration.Seconds(), Waiting: m.Cgroups[0].Some, Unknown: m.unknown()}
	for i := range m.Cgroups[0].Activity.Disks {
		d := &m.Cgroups[0].Activity.Disks[i]
		a.Disks = append(a.Disks, Disk{
			Disk: m.Disks[d.Dev], ReadBytes: d.Rates[blkio.Rbps], WriteBytes: d.Rates[blkio.Wbps],
			ReadOps: d.Rates[blkio.Riops], WriteOps: d.Rates[blkio.Wiops], Limit: m.limit(&m.Cgroups[0], d.Dev),
		})
	}
	waited := 0.0
	if m.NoWaits == nil && !m.isBlind() {
		shares := wait.Explain(m.Times, m.Within)
		for _, s := range shares {
			waited += s.Time.Seconds() / max(m.Duration.Seconds(), 1e-9)
			if s.Part >= least {
				a.Causes = append(a.Causes, m.cause(s))
			}
		}
	} else {
		a.Causes = m.guess()
	}
	if waited < least && (a.Waiting == nil || *a.Waiting < least) {
		a.Causes = nil
	}
	if len(a.Causes) == 0 {
		a.Cause, a.Text = NothingOfDisks, m.nothing()
		return a
	}
	a.Threads = waited
	first := a.Causes[0]
	a.Cause, a.Text = first.Cause, fmt.Sprintf("%s: %s, %s of that for %s", m.Target, a.waits(), percent(first.Part), first.Text)
	return a
}

func (a *Answer) waits() string {
	if a.Threads == 0 {
		return "waits for I/O " + percent(*a.Waiting) + " of the time"
	}
	return fmt.Sprintf("%.2g threads wait for I/O at a time", a.Threads)
}

// isBlind reports whether the kernel does not tell where I/O is: then a disk would be blamed for a limit, or the other way
// around.
func (m *Measured) isBlind() bool {
	return m.Unknown[wait.Limit] != nil || m.Unknown[wait.Device] != nil || m.Unknown[wait.Scheduler] != nil
}

func percent(part float64) string { return fmt.Sprintf("%.0f %%", 100*part) }

// nothing is the answer for a target that does not wait for I/O.
func (m *Measured) nothing() string {
	text := fmt.Sprintf("%s does not wait for I/O", m.Target)
	var others []string
	if m.CPU != nil && *m.CPU >= least {
		others = append(others, percent(*m.CPU)+" of the time for a CPU")
	}
	if m.Memory != nil && *m.Memory >= least {
		others = append(others, percent(*m.Memory)+" for memory")
	}
	if len(others) == 0 {
		return text + ": look at the network, at locks, and at what it waits for by itself"
	}
	return text + ": it waits " + strings.Join(others, ", and ")
}

func (m *Measured) unknown() []string {
	out := []string{}
	if m.NoWaits != nil {
		return append(out, "what I/O waits for, so the causes are guessed from rates and limits: "+m.NoWaits.Error())
	}
	for _, c := range slices.Sorted(maps.Keys(m.Unknown)) {
		out = append(out, c.String()+": "+m.Unknown[c].Error())
	}
	if m.Times.Lost > 0 {
		out = append(out, fmt.Sprintf("%d waits, which were too many to count", m.Times.Lost))
	}
	return out
}

// cause names a share of the time.
func (m *Measured) cause(s wait.Share) Cause {
	c := Cause{Part: s.Part, Disk: m.Disks[s.Dev]}
	switch s.Cause {
	case wait.Limit:
		m.ofLimit(&c, m.Subjects[s.By], s.Dev)
	case wait.Cost:
		c.Cause, c.Beside = Weight, m.users(s.Dev)
		c.Text = "its share of " + m.diskText(s.Dev) + " by its weight" + besideText(c.Beside)
		c.Do = "give it a larger weight, or its neighbours limits"
	case wait.DirtyNode, wait.DirtyCgroup:
		m.ofDirty(&c, s)
	case wait.Journal:
		c.Cause = Journal
		c.Text = "a commit of the filesystem on " + m.diskText(s.Dev) + m.behind(&c, s.Behind)
		c.Do = "give the writers of this filesystem no limits that its commits wait for, or filesystems of their own"
	case wait.Writeback:
		m.ofOwner(&c, s)
	case wait.Queue, wait.Scheduler, wait.Device:
		c.Cause, c.Beside = BusyDisk, m.users(s.Dev)
		c.Text = m.diskText(s.Dev) + " itself" + besideText(c.Beside)
		if c.Do = "the disk has no more to give: a faster disk, or less I/O"; len(c.Beside) > 0 {
			c.Do = fmt.Sprintf("give %s a limit or a class, or this pod a weight", c.Beside[0])
		}
	default:
		c.Cause = Unattributed
		c.Text, c.Do = "I/O of which nothing tells where it was", "ask again for a longer time: --for 1m"
	}
	return c
}

// ofLimit names the limit of a cgroup that is the target's, its pod's, or one above.
func (m *Measured) ofLimit(c *Cause, by Subject, dev blkio.Dev) {
	owner := m.cgroup(by)
	if owner != nil {
		c.Limit = m.limit(owner, dev)
	}
	switch {
	case by.isOfPod(m.Target) && by.Container != "":
		c.Cause, c.Text = OwnLimit, "its own limit on "
		if by.Container != m.Target.Container && m.Target.Container == "" {
			c.Who, c.Text = &by, fmt.Sprintf("the limit of container %s on ", by.Container)
		}
	case by.isOfPod(m.Target):
		c.Cause, c.Text = PodLimit, "the limit of the pod on "
	default:
		c.Cause, c.Who, c.Text = OtherLimit, &by, fmt.Sprintf("the limit of %s on ", by)
	}
	c.Text += m.diskText(dev) + limitText(c.Limit)
	c.Do = "raise the limit, or let it do less I/O"
	if c.Limit == nil || c.Limit.From == "" {
		c.Do = "find what has written io.max there: it is no limit of nri-blkio"
	}
}

func (m *Measured) ofDirty(c *Cause, s wait.Share) {
	if c.Cause = DirtyOfNode; s.Cause == wait.DirtyCgroup {
		c.Cause = DirtyOfCgroup
		c.Text = "dirty pages: as many wait to be written as its memory limit allows" + m.behind(c, s.Behind)
		c.Do = "give it more memory, or a higher limit on writes"
		return
	}
	c.Text = "dirty pages: as many wait to be written as the node allows"
	if most := m.mostUnwritten(); most != nil {
		c.Who = &most.Subject
		c.Text += fmt.Sprintf(", the most of %s (%d MiB)", most.Subject, most.Unwritten>>20)
	}
	c.Text += m.behind(c, s.Behind)
	c.Do = "set writeback.dirtyGuard for pods with low limits on writes, or give them memory limits"
}

func (m *Measured) ofOwner(c *Cause, s wait.Share) {
	by := m.Subjects[s.By]
	c.Cause, c.Who = OtherOwner, &by
	c.Text = fmt.Sprintf("data of its files on %s that is queued for %s", m.diskText(s.Dev), by)
	c.Do = "the writeback part moves such a file to its writer, if it runs: see nri-blkio status"
	if by.Ended || by == (Subject{}) {
		c.Cause, c.Do = Predecessor, "wait until this data is written, or run nri-blkio clear for its pod"
	}
	c.Text += m.behind(c, s.Behind)
}

// behind returns what the data of another owner waits for, with ", ".
func (m *Measured) behind(c *Cause, at *wait.Place) string {
	if at == nil || at.Cause != wait.Limit {
		return ""
	}
	by := m.Subjects[at.By]
	if c.Who == nil && !by.isOfPod(m.Target) {
		c.Who = &by
	}
	owner := m.cgroup(by)
	if owner == nil {
		return fmt.Sprintf(", behind the limit of %s", by)
	}
	c.Limit = m.limit(owner, at.Dev)
	return fmt.Sprintf(", behind the limit of %s%s", by, limitText(c.Limit))
}

func limitText(l *Limit) string {
	switch {
	case l == nil:
		return ""
	case l.From == "":
		return fmt.Sprintf(", %s=%s, which nri-blkio has not set", l.Key, l.Value)
	}
	return fmt.Sprintf(", %s=%s from %s", l.Key, l.Value, l.From)
}

// limit returns the limit of a cgroup on a disk that is used the most, nil without one.
func (m *Measured) limit(c *Cgroup, dev blkio.Dev) *Limit {
	i := slices.IndexFunc(c.Activity.Disks, func(d wait.DiskUse) bool { return d.Dev == dev })
	if i < 0 {
		return nil
	}
	d := &c.Activity.Disks[i]
	key, used, ok := d.Fullest()
	if !ok {
		return nil
	}
	out := &Limit{Key: key.String(), Value: annotation.FormatAmount(key, d.Limits[key]), Used: used}
	if c.Record != nil {
		if s, ok := c.Record.Settings.Get(blkio.Address{Key: key, Dev: dev}); ok && s.Amount == d.Limits[key] {
			out.From = s.Source.String()
		}
	}
	return out
}

func (m *Measured) cgroup(s Subject) *Cgroup {
	i := slices.IndexFunc(m.Cgroups, func(c Cgroup) bool { return s.Cgroup != "" && c.Cgroup == s.Cgroup })
	if i < 0 {
		return nil
	}
	return &m.Cgroups[i]
}

func (m *Measured) diskText(dev blkio.Dev) string { return cmp.Or(m.Disks[dev], "a disk") }

// mostUnwritten returns the pod with the most data that is not written yet, nil if none has any.
func (m *Measured) mostUnwritten() *Cgroup {
	var most *Cgroup
	for i := range m.Cgroups {
		if c := &m.Cgroups[i]; c.isWhole() && c.Unwritten > 0 && (most == nil || c.Unwritten > most.Unwritten) {
			most = c
		}
	}
	return most
}

// maxUsers is the number of other users of a disk that an answer names.
const maxUsers = 3

// users returns the other pods that use a disk, the most first.
func (m *Measured) users(dev blkio.Dev) []User {
	use, all := map[Subject]float64{}, 0.0
	add := func(s Subject, amount float64) {
		s.Container, s.Cgroup, s.Ended = "", podCgroup(s), false
		all += amount
		if !s.isOfPod(m.Target) {
			use[s] += amount
		}
	}
	for at, t := range m.Times.At {
		if at.Cause == wait.Device && at.Dev == dev {
			add(m.Subjects[at.Cgroup], t.Sum.Seconds())
		}
	}
	if all == 0 {
		for i := range m.Cgroups {
			for _, d := range m.Cgroups[i].Activity.Disks {
				if m.Cgroups[i].isWhole() && d.Dev == dev {
					add(m.Cgroups[i].Subject, d.Rates[blkio.Rbps]+d.Rates[blkio.Wbps])
				}
			}
		}
	}
	var out []User
	for s, amount := range use {
		if part := amount / max(all, 1e-9); part >= 0.05 {
			out = append(out, User{s, part})
		}
	}
	slices.SortFunc(out, func(a, b User) int {
		return cmp.Or(cmp.Compare(b.Part, a.Part), strings.Compare(a.String(), b.String()))
	})
	return out[:min(len(out), maxUsers)]
}

func podCgroup(s Subject) string {
	if pod, _ := split(s.Cgroup); pod != "" {
		return pod
	}
	return s.Cgroup
}

func besideText(users []User) string {
	if len(users) == 0 {
		return ""
	}
	var out []string
	for _, u := range users {
		out = append(out, fmt.Sprintf("%s (%s)", u.Subject, percent(u.Part)))
	}
	return ", beside " + strings.Join(out, ", ")
}

// nearLimit is the part of a limit from which a guess takes it for the cause.
const nearLimit = 0.9

// guess names causes by rates and pressure alone.
func (m *Measured) guess() []Cause {
	psi := m.Cgroups[0].Some
	if psi == nil || *psi < least {
		return nil
	}
	var out []Cause
	for i := range m.Cgroups {
		c := &m.Cgroups[i]
		if !c.isOfPod(m.Target) || c.Cgroup != m.Target.Cgroup && c.Container != "" && m.Target.Container != "" {
			continue
		}
		for _, d := range c.Activity.Disks {
			if _, used, ok := d.Fullest(); ok && used >= nearLimit {
				cause := Cause{Part: 1, Disk: m.Disks[d.Dev]}
				m.ofLimit(&cause, c.Subject, d.Dev)
				out = append(out, cause)
			}
		}
	}
	if len(out) > 0 {
		for i := range out {
			out[i].Part = 1 / float64(len(out))
		}
		return out
	}
	busiest := slices.MaxFunc(append([]wait.DiskUse{{}}, m.Cgroups[0].Activity.Disks...), func(a, b wait.DiskUse) int {
		return cmp.Compare(a.Rates[blkio.Rbps]+a.Rates[blkio.Wbps], b.Rates[blkio.Rbps]+b.Rates[blkio.Wbps])
	})
	share := wait.Share{Cause: wait.Device, Dev: busiest.Dev, Part: 1}
	if busiest.CostWait != nil && *busiest.CostWait >= *psi/2 {
		share.Cause = wait.Cost
	}
	return []Cause{m.cause(share)}
}
