// Package metricsserver serves metrics for Prometheus over HTTP. Any client that reaches the address can
// connect, so the resources of clients are bounded.
package metricsserver

import (
	"cmp"
	"context"
	"errors"
	stdlog "log"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	versioncollector "github.com/prometheus/client_golang/prometheus/collectors/version"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/sirupsen/logrus"
	"golang.org/x/net/netutil"
)

const (
	maxScrapes     = 2 // at a time; a client that exceeds them gets status 503
	maxConnections = 16
	headerTimeout  = 5 * time.Second
	scrapeTimeout  = 10 * time.Second
)

// Server serves metrics at /metrics.
type Server struct {
	Collectors []prometheus.Collector
	Version    string // of this program, in nri_blkio_build_info
	Log        logrus.FieldLogger

	idle time.Duration // how long a connection may be open without a request; 0 is headerTimeout
}

// Serve serves until ctx ends, and closes the listener. It logs a failure: limits do not depend on
// metrics.
func (s *Server) Serve(ctx context.Context, l net.Listener) {
	log := s.Log.WithField("address", l.Addr().String())
	idle := cmp.Or(s.idle, headerTimeout)
	server := &http.Server{
		Handler:           s.Handler(),
		ReadHeaderTimeout: idle,
		ReadTimeout:       idle,
		WriteTimeout:      scrapeTimeout,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          stdlog.New(logWriter{log}, "", 0),
	}
	// A connection that stays open between scrapes would be one of maxConnections. Each
	// connection ends with its answer, and one without a request after idle.
	server.SetKeepAlivesEnabled(false)
	defer context.AfterFunc(ctx, func() { server.Close() })()
	log.Info("Serving metrics")
	if err := server.Serve(netutil.LimitListener(l, maxConnections)); !errors.Is(err, http.ErrServerClosed) {
		log.WithError(err).Error("Metrics are not served any more")
	}
}

// Handler returns a handler for GET /metrics.
func (s *Server) Handler() http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(s.Collectors...)
	registry.MustRegister(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		versioncollector.NewCollector("nri_blkio", versioncollector.WithExtraConstLabels(prometheus.Labels{"version": s.Version})))
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{
		ErrorLog:            s.Log,
		ErrorHandling:       promhttp.ContinueOnError, // a metric that is wrong hides no other one
		MaxRequestsInFlight: maxScrapes,
		DisableCompression:  true, // a compressor takes a MiB for some KiB of text
	}))
	return mux
}

// logWriter writes the HTTP server's own messages to our log.
type logWriter struct{ log logrus.FieldLogger }

func (w logWriter) Write(line []byte) (int, error) {
	w.log.Warn(strings.TrimSpace(string(line)))
	return len(line), nil
}
