// Package notice keeps what is to be told about a pod or a node: each state that lasts is told once, in a line of the log, an event or
// both. A caller lists all notices that hold now. The ledger has those that were listed before, and returns those that are due.
package notice

import (
	"maps"
	"math"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/nri-blkio/nri-blkio/plugin/podevent"
	"github.com/nri-blkio/nri-blkio/policy"
)

// Notice is a state that is to be told while it lasts.
type Notice[K comparable] struct {
	Key      K             // identifies the notice for programs
	Patience time.Duration // for which it has to last before it is told
	Again    time.Duration // after which it is told again; 0 for never
	Value    string        // with another one it is told again; "" if only the key counts
	Event    func() Event  // nil for none; called with the lock of the state
	Line     *Line         // of the log; nil for none
	End      *Line         // that it has ended; nil for none
}

// Event is one about a pod.
type Event struct {
	Of     podevent.Pod
	Reason podevent.Reason
	Key    podevent.Key
	Note   string
}

// Line is a line of the log.
type Line struct {
	Level   logrus.Level
	Text    string
	Fields  logrus.Fields
	Err     error                         // nil for none
	Lines   func(*policy.Policy) []string // texts of as many lines, called without a lock; nil for Text alone
	Rejects bool                          // it is counted as a rejected edit
}

// Log writes the line. pol is the policy in force.
func (l *Line) Log(to logrus.FieldLogger, pol *policy.Policy) {
	log, texts := to.WithFields(l.Fields), []string{l.Text}
	if l.Err != nil {
		log = log.WithError(l.Err)
	}
	if l.Lines != nil {
		texts = l.Lines(pol)
	}
	for _, text := range texts {
		log.Log(l.Level, text)
	}
}

// Ledger has what was listed at the last look. The zero value has nothing. Only its methods change it.
type Ledger[K comparable] struct {
	Known map[K]Told
	Next  time.Time // when to look again; zero after a change
}

// Told is what is known of a notice that was listed.
type Told struct {
	Since, At time.Time // when it was first listed, and last told; At is zero before
	Value     string    // that was told
	end       *Line
}

// Look has the notices listed again, because they may have changed.
func (l *Ledger[K]) Look() { l.Next = time.Time{} }

// Due returns those notices that are to be told now, and keeps that they were. It forgets what is not listed any more.
func (l *Ledger[K]) Due(listed []Notice[K], now time.Time) (out []Notice[K]) {
	before := l.Known
	if l.Known, l.Next = nil, now.Add(math.MaxInt64); len(listed) > 0 {
		l.Known = make(map[K]Told, len(listed))
	}
	for _, x := range listed {
		if _, isListed := l.Known[x.Key]; isListed {
			continue
		}
		was, isKnown := before[x.Key]
		if !isKnown {
			was.Since = now
		}
		at, isTold := was.Since.Add(x.Patience), !was.At.IsZero() && was.Value == x.Value
		if isTold {
			at = was.At.Add(x.Again)
		}
		if isOver := isTold && x.Again == 0; !isOver && !now.Before(at) {
			was.At, was.Value, was.end = now, x.Value, x.End
			out, isTold, at = append(out, x), true, now.Add(x.Again)
		}
		if l.Known[x.Key] = was; at.Before(l.Next) && (!isTold || x.Again > 0) {
			l.Next = at
		}
	}
	for key, was := range before {
		if _, lasts := l.Known[key]; !lasts && was.end != nil {
			out = append(out, Notice[K]{Key: key, Line: was.end})
		}
	}
	return out
}

// Forget has those notices told again for whose key a condition holds.
func (l *Ledger[K]) Forget(of func(K) bool) {
	maps.DeleteFunc(l.Known, func(key K, _ Told) bool { return of(key) })
}
