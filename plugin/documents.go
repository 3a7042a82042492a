package plugin

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nri-blkio/nri-blkio/plugin/mailbox"
	"github.com/nri-blkio/nri-blkio/plugin/poddoc"
	"github.com/nri-blkio/nri-blkio/plugin/reminder"
)

const (
	// documentsInterval is the time between two looks at the exchange directory.
	documentsInterval = 200 * time.Millisecond
	// documentsRest is the time between two looks as a multiple of the time that the last one took. A writer of many files
	// must not take the CPU time that the limits of containers need.
	documentsRest = 4
)

// Documents follows the documents of the cluster part.
type Documents struct {
	plugin *Plugin
	reader *mailbox.Reader[poddoc.Document]
}

// NewDocuments returns the documents in the exchange directory, which are put into force as they are read. share makes the
// directory and shares it with the cluster part; it may be nil.
func (p *Plugin) NewDocuments(dir string, share func()) *Documents {
	return &Documents{p, mailbox.NewReader(mailbox.Config[poddoc.Document]{
		Dir: dir, Format: poddoc.Format(), Share: share,
		Changed: func(uid string, d *poddoc.Document) {
			if d == nil {
				p.node.SetLive(uid, nil)
				return
			}
			p.node.SetLive(uid, &d.Facts)
		},
		Warn: func(err error) {
			p.log.WithError(err).WithField("dir", dir).Warn("Some documents of pods cannot be read: what is in force for these pods stays")
		},
	})}
}

// Read puts into force what has changed since the last call.
func (d *Documents) Read() {
	d.plugin.recovery.Step("read documents", func() { d.reader.Read(time.Now()) })
}

// Run reads until ctx ends.
func (d *Documents) Run(ctx context.Context) {
	reminder.Every(ctx, documentsInterval, func(began time.Time) {
		d.Read()
		reminder.Sleep(ctx, documentsRest*time.Since(began)-documentsInterval)
	})
}

var documentsDesc = prometheus.NewDesc("nri_blkio_pod_documents", "Documents of the cluster part, by whether the limits part can use them. For one that it cannot use, an earlier version counts.", []string{"state"}, nil)

var _ prometheus.Collector = (*Documents)(nil)

// Describe implements prometheus.Collector.
func (d *Documents) Describe(out chan<- *prometheus.Desc) { out <- documentsDesc }

// Collect implements prometheus.Collector.
func (d *Documents) Collect(out chan<- prometheus.Metric) {
	usable, unreadable := d.reader.Counts()
	out <- prometheus.MustNewConstMetric(documentsDesc, prometheus.GaugeValue, float64(usable), "read")
	out <- prometheus.MustNewConstMetric(documentsDesc, prometheus.GaugeValue, float64(unreadable), "unreadable")
}
