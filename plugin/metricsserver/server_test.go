package metricsserver

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus/hooks/test"
)

// serve starts a server on a free port, and returns its address, its log, and a function that
// stops it.
func serve(t *testing.T, collectors ...prometheus.Collector) (address string, hook *test.Hook, stop func()) {
	t.Helper()
	return serveIdle(t, 0, collectors...)
}

// serveIdle does what serve does, for a server that closes idle connections after the given time.
func serveIdle(t *testing.T, idle time.Duration, collectors ...prometheus.Collector) (address string, hook *test.Hook, stop func()) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	log, hook := test.NewNullLogger()
	s := Server{Collectors: collectors, Version: "v1.2.3", Log: log, idle: idle}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Serve(ctx, l)
	}()
	stop = func() {
		t.Helper()
		cancel()
		select {
		case <-done:
		case <-time.After(time.Minute):
			t.Fatal("it did not end with its context in a minute")
		}
	}
	t.Cleanup(stop)
	return l.Addr().String(), hook, stop
}

func get(t *testing.T, url string) (resp *http.Response, body string) {
	t.Helper()
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Timeout: time.Minute, Transport: transport}).Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(data)
}

func TestServeMetrics(t *testing.T) {
	pods := prometheus.NewGauge(prometheus.GaugeOpts{Name: "nri_blkio_pods", Help: "Pods."})
	address, hook, stop := serve(t, pods)
	resp, body := get(t, "http://"+address+"/metrics")
	for _, want := range []string{"nri_blkio_build_info{branch=\"", "version=\"v1.2.3\"", "\nnri_blkio_pods 0\n", "\nprocess_resident_memory_bytes "} {
		if !strings.Contains(body, want) {
			t.Errorf("%q is missing in\n%s", want, body)
		}
	}
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Encoding") != "" {
		t.Errorf("%+v", resp)
	}
	if !resp.Close {
		t.Error("the server keeps the connection open after its answer")
	}
	if resp, _ := get(t, "http://"+address+"/"); resp.StatusCode != http.StatusNotFound {
		t.Errorf("another path: status %d", resp.StatusCode)
	}

	// An open connection does not keep the server from ending.
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	stop()
	if l, err := net.Listen("tcp", address); err != nil {
		t.Errorf("the address is still in use: %v", err)
	} else {
		l.Close()
	}
	for _, e := range hook.AllEntries() {
		if e.Message != "Serving metrics" {
			t.Errorf("logged: %s", e.Message)
		}
	}
}

// TestMaxScrapes verifies that a scrape that exceeds maxScrapes is rejected at once.
func TestMaxScrapes(t *testing.T) {
	entered, release := make(chan struct{}), make(chan struct{})
	slow := prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "slow", Help: "Slow."}, func() float64 {
		entered <- struct{}{}
		<-release
		return 0
	})
	address, _, _ := serve(t, slow)
	scraped := make(chan int)
	for range maxScrapes {
		go func() {
			resp, err := http.Get("http://" + address + "/metrics")
			if err != nil {
				scraped <- 0
				return
			}
			resp.Body.Close()
			scraped <- resp.StatusCode
		}()
	}
	for range maxScrapes {
		<-entered
	}
	if resp, _ := get(t, "http://"+address+"/metrics"); resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("another scrape: status %d", resp.StatusCode)
	}
	close(release)
	for range maxScrapes {
		if status := <-scraped; status != http.StatusOK {
			t.Errorf("a slow scrape: status %d", status)
		}
	}
}

// TestIdleConnections verifies that connections without a request keep others out of the server for as long as
// such a connection may stay open, and not for longer.
func TestIdleConnections(t *testing.T) {
	const idle = time.Second
	pods := prometheus.NewGauge(prometheus.GaugeOpts{Name: "nri_blkio_pods", Help: "Pods."})
	address, _, _ := serveIdle(t, idle, pods)
	began := time.Now()
	var idlers []net.Conn
	for range maxConnections {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		idlers = append(idlers, conn)
	}
	resp, body := get(t, "http://"+address+"/metrics")
	if took := time.Since(began); took < idle {
		t.Errorf("beside %d other connections there was an answer after %v", maxConnections, took)
	}
	if resp.StatusCode != http.StatusOK || !strings.Contains(body, "\nnri_blkio_pods 0\n") {
		t.Errorf("status %d\n%s", resp.StatusCode, body)
	}
	for _, conn := range idlers {
		if err := conn.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, conn); err != nil { // to the end of the connection
			t.Errorf("an idle connection is open: %v", err)
		}
	}
}

// TestServeFails verifies that a listener that fails is logged.
func TestServeFails(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	log, hook := test.NewNullLogger()
	(&Server{Log: log}).Serve(t.Context(), l)
	if e := hook.LastEntry(); e == nil || e.Message != "Metrics are not served any more" {
		t.Errorf("logged %v", e)
	}
}

// TestLogWriter verifies that a message of the HTTP server is one line of the log.
func TestLogWriter(t *testing.T) {
	log, hook := test.NewNullLogger()
	if n, err := (logWriter{log}).Write([]byte("http: TLS handshake error\n")); n != 26 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if got := hook.LastEntry().Message; got != "http: TLS handshake error" {
		t.Errorf("logged %q", got)
	}
}

// twice gives the same metric two times, which a registry refuses.
type twice struct{ prometheus.Metric }

func (c twice) Describe(out chan<- *prometheus.Desc) { out <- c.Desc() }

func (c twice) Collect(out chan<- prometheus.Metric) { out <- c; out <- c }

// TestWrongMetric verifies that a metric that cannot be served is logged, and hides no other one.
func TestWrongMetric(t *testing.T) {
	pods := prometheus.NewGauge(prometheus.GaugeOpts{Name: "nri_blkio_pods", Help: "Pods."})
	wrong := twice{prometheus.NewGauge(prometheus.GaugeOpts{Name: "wrong", Help: "Wrong."})}
	address, hook, _ := serve(t, pods, wrong)
	resp, body := get(t, "http://"+address+"/metrics")
	if resp.StatusCode != http.StatusOK || !strings.Contains(body, "\nnri_blkio_pods 0\n") {
		t.Errorf("status %d\n%s", resp.StatusCode, body)
	}
	if e := hook.LastEntry(); e == nil || !strings.Contains(e.Message, "was collected before") {
		t.Errorf("logged %v", e)
	}
}
