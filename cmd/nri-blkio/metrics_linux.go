package main

import (
	"context"
	"errors"
	"fmt"
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

// Any client that reaches the address can connect. These bounds keep what such
// clients use up away from the work on limits.
const (
	maxScrapes     = 2 // at a time; more are told to come again
	maxConnections = 16
	headerTimeout  = 5 * time.Second
	scrapeTimeout  = 10 * time.Second
)

// listenMetrics returns nil for the empty address.
func listenMetrics(ctx context.Context, address string) (net.Listener, error) {
	if address == "" {
		return nil, nil
	}
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", address)
	if err != nil {
		err = fmt.Errorf("--metrics-address: %w", err)
		if _, invalid := errors.AsType[*net.AddrError](err); invalid {
			err = usage(err)
		}
		return nil, err
	}
	return netutil.LimitListener(l, maxConnections), nil
}

// serveMetrics serves what these collect at /metrics until ctx ends, and closes the
// listener. A failure is logged: limits do not depend on it.
func serveMetrics(ctx context.Context, l net.Listener, c []prometheus.Collector, log logrus.FieldLogger) {
	log = log.WithField("address", l.Addr().String())
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", metricsHandler(c, log))
	server := &http.Server{
		Handler:           mux,
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       headerTimeout,
		WriteTimeout:      scrapeTimeout,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          stdlog.New(logWriter{log}, "", 0),
	}
	// A connection that is kept open between scrapes would be one of the few that
	// there are. Each ends with its answer, and one without a request at headerTimeout.
	server.SetKeepAlivesEnabled(false)
	defer context.AfterFunc(ctx, func() { server.Close() })()
	log.Info("Serving metrics")
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		log.WithError(err).Error("Metrics are not served any more")
	}
}

func metricsHandler(c []prometheus.Collector, log logrus.FieldLogger) http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(append(c, collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		versioncollector.NewCollector("nri_blkio", versioncollector.WithExtraConstLabels(prometheus.Labels{"version": buildVersion()})))...)
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{
		ErrorLog:            log,
		MaxRequestsInFlight: maxScrapes,
		DisableCompression:  true, // a compressor takes a MiB, for some KiB of text
	})
}

// logWriter gives the HTTP server's own messages to our log.
type logWriter struct{ log logrus.FieldLogger }

func (w logWriter) Write(line []byte) (int, error) {
	w.log.Warn(strings.TrimSpace(string(line)))
	return len(line), nil
}
