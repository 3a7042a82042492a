// Package policyfile watches the file of the node policy. A new valid policy applies without a
// restart; an invalid one is logged, and the last valid one stays in force.
package policyfile

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"

	"github.com/nri-blkio/nri-blkio/internal/terminal"
	"github.com/nri-blkio/nri-blkio/plugin/recovery"
	"github.com/nri-blkio/nri-blkio/plugin/reminder"
	"github.com/nri-blkio/nri-blkio/policy"
	"github.com/nri-blkio/nri-blkio/policy/quote"
)

// Interval is the time between two reads of the file. It is small. Polling sees the symlinks of a ConfigMap
// change, which a watch of one inode does not.
const Interval = 5 * time.Second

// Config is the configuration of a Watch.
type Config struct {
	File  string
	Every time.Duration                     // 0 is Interval
	Read  func(file string) ([]byte, error) // such as os.ReadFile
	Parse func([]byte) (*policy.Policy, error)
	Log   logrus.FieldLogger
	// Recovery counts panics. It may be nil.
	Recovery *recovery.Recovery
}

// Watch reads a policy file again and again. As a collector it serves whether the file is rejected.
type Watch struct {
	Config
	last content
	// rejection is the reason why the content of the file is not in force; nil while it is in force. Set by Run.
	rejection atomic.Pointer[string]
}

// content is the result of reading the file. The error is kept as text, so that the same error
// is the same content.
type content struct {
	data []byte
	err  string
}

func (c content) equal(other content) bool {
	return c.err == other.err && bytes.Equal(c.data, other.data)
}

// NewWatch returns a watch for changes from now on.
func NewWatch(c Config) *Watch {
	if c.Every == 0 {
		c.Every = Interval
	}
	w := &Watch{Config: c}
	w.last = w.read()
	return w
}

// Run calls reload for each new content that is a valid policy, until ctx ends. A file that
// cannot be read or is invalid is logged again for as long as it stays so.
func (w *Watch) Run(ctx context.Context, reload func(*policy.Policy)) {
	log := w.Log.WithField("policy", w.File)
	var problem error
	var reminded reminder.Reminder
	reminder.Every(ctx, w.Every, func(time.Time) {
		if now := w.read(); !now.equal(w.last) {
			w.last = now
			problem = w.Recovery.Guarded(func() error {
				p, err := w.parse(now)
				if err == nil {
					reload(p)
					log.Info("Reloaded the node policy")
				}
				return err
			})
			w.setRejection(problem)
		}
		if reminded.Due(time.Now(), problem) {
			log.WithError(problem).Error("Rejected the new node policy, keeping the old one")
		}
	})
}

func (w *Watch) read() content {
	data, err := w.Read(w.File)
	if err != nil {
		return content{err: fmt.Sprint(err)}
	}
	return content{data: data}
}

func (w *Watch) parse(c content) (*policy.Policy, error) {
	if c.err != "" {
		return nil, errors.New(c.err)
	}
	return w.Parse(c.data)
}

// maxRejection bounds the bytes of a rejection, which has text of the file. It is part of reports that are
// written every few seconds.
const maxRejection = 1024

// Rejection returns the reason why the content of the file was rejected, in one line of printable text, or "" if
// that content is in force. A nil Watch, which watches no file, has none. Rejection may be called at any time.
func (w *Watch) Rejection() string {
	if w == nil {
		return ""
	}
	if text := w.rejection.Load(); text != nil {
		return *text
	}
	return ""
}

func (w *Watch) setRejection(err error) {
	if err == nil {
		w.rejection.Store(nil)
		return
	}
	text := quote.Clip(strings.Join(terminal.ErrorLines(err), "; "), maxRejection)
	w.rejection.Store(&text)
}

var rejectedDesc = prometheus.NewDesc("nri_blkio_policy_rejected",
	"1 while the policy file is invalid or cannot be read, and the former policy stays in force.", nil, nil)

var _ prometheus.Collector = (*Watch)(nil)

// Describe is the half of prometheus.Collector that names the metric.
func (w *Watch) Describe(out chan<- *prometheus.Desc) { out <- rejectedDesc }

// Collect is the half of prometheus.Collector that gives its value.
func (w *Watch) Collect(out chan<- prometheus.Metric) {
	value := 0.0
	if w.Rejection() != "" {
		value = 1
	}
	out <- prometheus.MustNewConstMetric(rejectedDesc, prometheus.GaugeValue, value)
}
