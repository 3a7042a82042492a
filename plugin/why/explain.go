// Package why answers what a pod waits for when its disks are slow. [Measure] measures the node for some seconds, and
// [Explain] computes the answer from that alone.
//
// A limit is named only if it held I/O of the pod, or of the owner of its data, in that time. What a kernel cannot tell
// is listed as unknown. A [Watch] measures again and again, and [ExplainAll] computes what all containers wait for. [FileOwners] names
// the containers whose limits apply to writes to files.
package why

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/wait"
)

// least is the part of the time below which a wait is no answer.
const least = 0.01

// much is the part of the time from which waiting for a CPU, or for memory, is said beside a wait for I/O.
const much = 0.25

const guessed = "what I/O waits for, so the causes are guessed from rates and limits"

// Explain computes the answer. It is a function of its argument.
func Explain(m Measured) Answer {
	a := Answer{
		Subject: m.Target, Seconds: m.Duration.Seconds(), Waiting: m.Cgroups[0].Some, Guessed: m.isGuessed(),
		CPU: m.CPU, Memory: m.Memory, Causes: []Cause{}, Disks: []Disk{}, Unknown: m.unknown(),
	}
	for i := range m.Cgroups[0].Disks {
		a.Disks = append(a.Disks, m.disk(&m.Cgroups[0], &m.Cgroups[0].Disks[i]))
	}
	if a.Guessed {
		a.Causes = m.guess()
	} else {
		a.Threads, a.Causes = m.causes()
	}
	if len(a.Causes) == 0 {
		a.Cause, a.Text = NothingOfDisks, m.nothing()
		if m.isUnseen() {
			a.Cause = Unseen
		}
		return a
	}
	a.Cause, a.Text = a.Causes[0].Cause, fmt.Sprintf("%s: %s", m.Target, a.waits())
	if others := m.others(much); others != "" {
		a.Text += "; besides, it waits " + others
	}
	return a
}

// disk returns what a cgroup does on a disk.
func (m *Measured) disk(c *Cgroup, d *wait.DiskUse) Disk {
	return Disk{
		Disk: m.Disks[d.Dev], ReadBytes: d.Rates[blkio.Rbps], WriteBytes: d.Rates[blkio.Wbps],
		ReadOps: d.Rates[blkio.Riops], WriteOps: d.Rates[blkio.Wiops], Limit: m.limit(c, d.Dev, wait.None),
	}
}

// causes returns how many threads waited at a time, and what for. There is none if that is hardly any.
func (m *Measured) causes() (threads float64, out []Cause) {
	seconds := max(m.Times.Duration.Seconds(), 1e-9)
	shares, all := wait.Explain(m.Times, m.Within, m.Used), 0.0
	for _, s := range shares {
		all += s.Time.Seconds() / seconds
	}
	// Pressure is less than the time of threads. If it is far more, threads waited without a begin that was seen: since before that, at
	// a disk that does not answer, or for lack of room. It has also those that wait for completions of io_uring, as of sockets.
	if psi := m.Cgroups[0].Some; psi != nil && *psi >= least && *psi > 2*(all+m.asked()/seconds) {
		for i := range shares {
			shares[i].Part *= all / *psi
		}
		shares = append(shares, wait.Share{Cause: wait.IO, Part: 1 - all / *psi})
		slices.SortStableFunc(shares, func(a, b wait.Share) int { return cmp.Compare(b.Part, a.Part) })
		all = *psi
	}
	out = []Cause{}
	if all < least {
		return all, out
	}
	for i, s := range shares {
		if i > 0 && s.Part < least { // of very many disks each can have less
			break
		}
		c := m.cause(s)
		// The disk's queue and the disk are one cause.
		if j := slices.IndexFunc(out, func(o Cause) bool { return o.Cause == c.Cause && o.Text == c.Text }); j >= 0 {
			out[j].Part += c.Part
			continue
		}
		out = append(out, c)
	}
	slices.SortStableFunc(out, func(a, b Cause) int { return cmp.Compare(b.Part, a.Part) })
	return all, out
}

// asked returns for how many seconds threads of the target waited for completions, of I/O or of anything else.
func (m *Measured) asked() (seconds float64) {
	for at, t := range m.Times.At {
		if at.Cause == wait.Async && m.Within[at.Cgroup] {
			seconds += t.Sum.Seconds()
		}
	}
	return seconds
}

func (a *Answer) waits() string {
	first := &a.Causes[0]
	switch {
	case a.Guessed && a.Waiting == nil && first.Cause == Unattributed:
		return "whether it waits for I/O is unknown"
	case a.Guessed && a.Waiting == nil:
		return "whether it waits for I/O is unknown, and perhaps for " + first.Text
	case a.Guessed && first.Cause == Unattributed:
		return fmt.Sprintf("waits for I/O %s of the time, and what for is unknown", percent(*a.Waiting))
	case a.Guessed:
		return fmt.Sprintf("waits for I/O %s of the time, probably for %s", percent(*a.Waiting), first.Text)
	case a.Threads < 10:
		return fmt.Sprintf("%.2g threads wait for I/O at a time, %s of that for %s", a.Threads, percent(first.Part), first.Text)
	}
	return fmt.Sprintf("%.0f threads wait for I/O at a time, %s of that for %s", a.Threads, percent(first.Part), first.Text)
}

// isGuessed reports whether the kernel does not tell where threads and I/O wait: then a disk would be blamed for a limit, or the other
// way around.
func (m *Measured) isGuessed() bool {
	isUnknown := func(c wait.Cause) bool { return m.Unknown[c] != nil }
	return m.NoWaits != nil || slices.ContainsFunc([]wait.Cause{wait.Limit, wait.Device, wait.Scheduler, wait.IO}, isUnknown)
}

func percent(part float64) string {
	if part < least {
		return fmt.Sprintf("%.1f %%", 100*part)
	}
	return fmt.Sprintf("%.0f %%", 100*part)
}

// isUnseen reports whether waits for a journal are not seen. Pressure has none of them.
func (m *Measured) isUnseen() bool { return m.NoWaits != nil || m.Unknown[wait.Journal] != nil }

// nothing is the answer for a target that does not wait for I/O.
func (m *Measured) nothing() string {
	text := fmt.Sprintf("%s does not wait for I/O", m.Target)
	switch {
	case m.isUnseen():
		text += " that is seen, but perhaps for a commit of its filesystem, see what is unknown"
	case len(m.unknown()) > 0:
		text += " as far as this kernel tells"
	}
	if others := m.others(least); others != "" {
		return text + ": it waits " + others
	}
	return text + ": look at the network, at locks, and at what it waits for by itself"
}

// others is how much of the time the target waits for a CPU and for memory, "" if each is below a part.
func (m *Measured) others(atLeast float64) string {
	var out []string
	if m.CPU != nil && *m.CPU >= atLeast {
		out = append(out, percent(*m.CPU)+" of the time for a CPU")
	}
	if m.Memory != nil && *m.Memory >= atLeast {
		out = append(out, percent(*m.Memory)+" of the time for memory")
	}
	return strings.Join(out, ", and ")
}

func (m *Measured) unknown() []string {
	switch {
	case m.NoWaits != nil:
		return []string{guessed + ": " + m.NoWaits.Error()}
	case m.isGuessed():
		return append([]string{guessed}, m.unknownCauses()...)
	}
	return m.unknownCauses()
}

func (m *Measured) unknownCauses() []string {
	out := []string{}
	for _, c := range slices.Sorted(maps.Keys(m.Unknown)) {
		out = append(out, c.String()+": "+m.Unknown[c].Error())
	}
	if m.Unsampled != nil && m.Unknown[wait.Journal] == nil {
		out = append(out, fmt.Sprintf("%s, for a wait that began before: %v", wait.Journal, m.Unsampled))
	}
	if m.Times.Lost > 0 {
		out = append(out, fmt.Sprintf("%d waits, which were too many to count", m.Times.Lost))
	}
	return out
}

// The causes of an answer, by which programs know them.
const (
	OwnLimit       = "own-limit"       // io.max of the container
	PodLimit       = "pod-limit"       // io.max of its pod
	OtherLimit     = "other-limit"     // io.max of another cgroup
	Weight         = "share"           // io.cost: its share of the disk is used up
	Reserve        = "reserve"         // the same, and mostly what runs outside of pods uses the disk
	DirtyOfNode    = "dirty-node"      // the node has too many dirty pages
	DirtyOfCgroup  = "dirty-cgroup"    // the container has too many for its memory
	Journal        = "journal"         // a commit of the filesystem
	OtherOwner     = "other-owner"     // its file's data is queued for another container
	Predecessor    = "predecessor"     // the same, and that container has ended
	BusyDisk       = "busy-disk"       // the disk, or its queue
	Unattributed   = "unattributed"    // I/O, and nothing tells where it was
	Unseen         = "unknown"         // it waits for no I/O that is seen, but waits for a journal are not
	NothingOfDisks = "nothing-of-disk" // it does not wait for I/O
)

// Answer is why a pod, or a container, waits.
type Answer struct {
	Subject
	Seconds float64 `json:"seconds"` // measured
	// Threads is the number of threads that waited for I/O at a time, in the mean; 0 if the causes are guessed.
	Threads float64 `json:"threads"`
	// Waiting is the part of the time in which some thread waited for I/O, by the kernel's pressure stall information; nil if
	// it has none. Of a thread that waits on one CPU after another it shows a part only.
	Waiting *float64 `json:"waiting,omitempty"`
	// CPU and Memory are the parts of the time in which some thread waited for a CPU, or for memory; nil if the kernel has no
	// pressure stall information.
	CPU    *float64 `json:"cpu,omitempty"`
	Memory *float64 `json:"memory,omitempty"`
	// Guessed is true if the waits were not counted: the causes follow from rates, limits and pressure.
	Guessed bool    `json:"guessed"`
	Cause   string  `json:"cause"` // the first one's
	Text    string  `json:"text"`  // the answer in one line
	Causes  []Cause `json:"causes"`
	Disks   []Disk  `json:"disks"` // used by the target
	// Unknown are causes that this kernel does not tell, with the reasons.
	Unknown []string `json:"unknown"`
}

// Cause is a part of the time that threads waited for I/O.
type Cause struct {
	Cause string  `json:"cause"`
	Part  float64 `json:"part"`
	Disk  string  `json:"disk,omitempty"`
	// Who is the container or pod that has the limit, or that wrote or read the data. It is nil if that is the target.
	Who    *Subject `json:"who,omitempty"`
	Limit  *Limit   `json:"limit,omitempty"`
	Beside []User   `json:"beside,omitempty"` // the other users of the disk, the heaviest first
	Text   string   `json:"text"`
	Do     string   `json:"do"`
}

// Limit is a limit in force.
type Limit struct {
	Key   string  `json:"key"`
	Value string  `json:"value"`
	Used  float64 `json:"used"` // part of it
	// From is the annotation, class or rule that it is from; "" if this program has not set it.
	From  string `json:"from,omitempty"`
	Burst bool   `json:"burst,omitempty"` // it is a burst
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
