package why

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/wait"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

func (m *Measured) cause(s wait.Share) Cause {
	c := Cause{Part: s.Part, Disk: m.Disks[s.Dev]}
	switch s.Cause {
	case wait.Limit:
		m.ofLimit(&c, m.Subjects[s.By], s.Dev, s.Op)
	case wait.Cost:
		c.Cause, c.Beside = Weight, m.users(s.Dev)
		c.Text = "its share of " + m.diskText(s.Dev) + " by its weight" + besideText(c.Beside)
		c.Do = "give it a larger weight, or its neighbours limits"
		if len(c.Beside) > 0 && c.Beside[0].isOutside() {
			c.Cause, c.Do = Reserve, fmt.Sprintf("lower reserve.system in the node policy, if it is set, or find what %s does", c.Beside[0])
		}
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
		c.Do = "no other pod uses much of it: a faster disk, or less I/O"
		if i := slices.IndexFunc(c.Beside, func(u User) bool { return u.Pod != "" }); i >= 0 {
			c.Do = fmt.Sprintf("give %s a limit or a class, or this pod a weight", c.Beside[i])
		}
	default:
		c.Cause, c.Text, c.Do = Unattributed, "I/O of which nothing tells where it was", askAgain
		if m.Times.Mixed {
			c.Text, c.Do = "I/O, or what this kernel does not tell apart from it", "see what is unknown"
		}
	}
	return c
}

const askAgain = "ask again for a longer time, --for 1m: a disk that does not answer, and a very low limit, look so for a short one"

// ofLimit names the limit of a cgroup that is the target's, its pod's, or one above. The keys are those of op.
func (m *Measured) ofLimit(c *Cause, by Subject, dev blkio.Dev, op wait.Op) {
	owner := m.cgroup(by)
	if owner != nil {
		c.Limit = m.limit(owner, dev, op)
	}
	switch {
	case by.isOfPod(m.Target) && !by.isWhole():
		c.Cause, c.Text = OwnLimit, "its own limit on "
		if m.Target.Container == "" {
			c.Who, c.Text = &by, fmt.Sprintf("the limit of container %s on ", cmp.Or(by.Container, "(of unknown name)"))
		}
	case by.isOfPod(m.Target):
		c.Cause, c.Text = PodLimit, "the limit of the pod on "
	default:
		c.Cause, c.Who, c.Text = OtherLimit, &by, fmt.Sprintf("the limit of %s on ", by)
	}
	c.Text += m.diskText(dev) + limitText(c.Limit)
	c.Do = "raise the limit, or let it do less I/O"
	switch {
	case by.isMade():
		c.Do = "the container has set it by itself, in cgroup " + by.Cgroup
	case c.Limit == nil:
		c.Do = "ask again: the limit, or its container, began or ended meanwhile"
	case c.Limit.From == "":
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
	if s.By == 0 {
		c.Cause, c.Text, c.Do = Unattributed, "data of its files that is written to "+m.diskText(s.Dev)+", of which nothing tells where it was", askAgain
		return
	}
	by := m.Subjects[s.By]
	c.Cause, c.Who = OtherOwner, &by
	c.Text = fmt.Sprintf("data of its files on %s that is queued for %s", m.diskText(s.Dev), by)
	c.Do = "the writeback part moves such a file to its writer, if it runs: see nri-blkio status"
	if by.Ended || by == (Subject{}) {
		c.Cause, c.Do = Predecessor, "wait until this data is written: nri-blkio status shows how much is left, and at what limit"
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
	c.Limit = m.limit(owner, at.Dev, at.Op)
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

// limit returns the limit of a cgroup on a disk that is used the most, of the keys of op. It is nil without one.
func (m *Measured) limit(c *Cgroup, dev blkio.Dev, op wait.Op) *Limit {
	i := slices.IndexFunc(c.Disks, func(d wait.DiskUse) bool { return d.Dev == dev })
	if i < 0 {
		return nil
	}
	d := &c.Disks[i]
	key, used, ok := d.Fullest(op)
	if !ok {
		return nil
	}
	out := &Limit{Key: key.String(), Value: annotation.FormatAmount(key, d.Limits[key]), Used: used}
	if c.Record != nil {
		if s, ok := c.Record.Settings.Get(blkio.Address{Key: key, Dev: dev}); ok && s.Amount <= d.Limits[key] {
			out.From, out.Burst = s.Source.String(), s.Amount < d.Limits[key] // the record has the limit below the burst
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

func (m *Measured) diskText(dev blkio.Dev) string { return cmp.Or(m.Disks[dev], "an unknown disk") }

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
			for _, d := range m.Cgroups[i].Disks {
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

func (m *Measured) guess() []Cause {
	psi := m.Cgroups[0].Some
	if psi != nil && *psi < least {
		return []Cause{}
	}
	var out []Cause
	for i := range m.Cgroups {
		c := &m.Cgroups[i]
		if !c.isOfPod(m.Target) || c.Cgroup != m.Target.Cgroup && !c.isWhole() && m.Target.Container != "" {
			continue
		}
		for _, d := range c.Disks {
			if _, used, ok := d.Fullest(wait.None); ok && used >= nearLimit {
				cause := Cause{Part: 1, Disk: m.Disks[d.Dev]}
				m.ofLimit(&cause, c.Subject, d.Dev, wait.None)
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
	busiest := slices.MaxFunc(append([]wait.DiskUse{{}}, m.Cgroups[0].Disks...), func(a, b wait.DiskUse) int {
		return cmp.Compare(a.Rates[blkio.Rbps]+a.Rates[blkio.Wbps], b.Rates[blkio.Rbps]+b.Rates[blkio.Wbps])
	})
	share := wait.Share{Cause: wait.Device, Dev: busiest.Dev, Part: 1}
	switch {
	case psi == nil || busiest.Dev == blkio.Dev{}:
		share.Cause, share.Dev = wait.IO, blkio.Dev{}
	case busiest.CostWait != nil && *busiest.CostWait >= *psi/2:
		share.Cause = wait.Cost
	}
	cause := m.cause(share)
	if share.Cause == wait.IO {
		cause.Do = "measure with the rights, or on a kernel, that the reason asks for"
	}
	return []Cause{cause}
}
