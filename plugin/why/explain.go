package why

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/wait"
)

// least is the part of the time below which a wait is no answer.
const least = 0.01

// Explain computes the answer. It is a function of its argument.
func Explain(m Measured) Answer {
	a := Answer{Subject: m.Target, Seconds: m.Duration.Seconds(), Waiting: m.Cgroups[0].Some, Unknown: m.unknown()}
	for i := range m.Cgroups[0].Disks {
		d := &m.Cgroups[0].Disks[i]
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
