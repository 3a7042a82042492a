package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus/hooks/test"

	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/blkio/storage"
	"github.com/nri-blkio/nri-blkio/internal/terminal"
	"github.com/nri-blkio/nri-blkio/plugin"
	"github.com/nri-blkio/nri-blkio/plugin/repair"
	"github.com/nri-blkio/nri-blkio/policy"
)

const loopback = "127.0.0.1:0"

func get(t *testing.T, url string) (status int, body string) {
	t.Helper()
	client := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(data)
}

// collector is a plugin of a node without pods.
func collector(t *testing.T) prometheus.Collector {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/cgroup.controllers", []byte("io\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	tree, err := cgroupfs.OpenTree(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tree.Close() })
	log, _ := test.NewNullLogger()
	p, err := plugin.New(plugin.Config{Log: log, Policy: policy.Default(), Storage: &storage.Storage{}, Cgroups: tree})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestServeMetrics(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	l, err := listenMetrics(ctx, loopback)
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	log, hook := test.NewNullLogger()
	done := make(chan struct{})
	go func() {
		defer close(done)
		serveMetrics(ctx, l, []prometheus.Collector{collector(t), &repair.Repairer{}, plugin.NewValidator(log)}, log)
	}()
	status, body := get(t, "http://"+address+"/metrics")
	if status != http.StatusOK || !strings.Contains(body, "nri_blkio_build_info{branch=\"") || !strings.Contains(body, "\nnri_blkio_pods 0\n") {
		t.Errorf("%d %s", status, body)
	}
	if status, _ := get(t, "http://"+address+"/"); status != http.StatusNotFound {
		t.Errorf("another path: status %d", status)
	}
	testMetricsPage(t, body)

	// A client cannot keep its connection for itself.
	client := http.Client{Transport: &http.Transport{}}
	resp, err := client.Get("http://" + address + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if !resp.Close {
		t.Error("the server keeps the connection open after its answer")
	}

	_, err = listenMetrics(ctx, address)
	if err == nil || terminal.EscapeLine(err.Error()) != err.Error() || !strings.HasPrefix(err.Error(), "--metrics-address: listen tcp "+address) {
		t.Errorf("of an address in use: %v", err)
	}

	// A connection that is open does not keep it from ending.
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	cancel()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Fatal("it did not end with its context within 10 s")
	}
	if l, err := listenMetrics(t.Context(), address); err != nil {
		t.Error(err)
	} else {
		l.Close()
	}
	for _, e := range hook.AllEntries() {
		if e.Message != "Serving metrics" {
			t.Errorf("logged: %s", e.Message)
		}
	}
}

// testMetricsPage compares the metrics that are served with the tables of the page.
func testMetricsPage(t *testing.T, body string) {
	t.Helper()
	data, err := os.ReadFile("../../docs/reference/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	var served, told []string
	for _, m := range regexp.MustCompile(`(?m)^# TYPE (\S+)`).FindAllStringSubmatch(body, -1) {
		served = append(served, m[1])
	}
	for _, m := range regexp.MustCompile("(?m)^\\| `((?:nri_blkio|process)_[a-z_]+)").FindAllStringSubmatch(string(data), -1) {
		told = append(told, m[1])
	}
	slices.Sort(told)
	if !slices.Equal(served, told) {
		t.Errorf("served:\n%q\non the page:\n%q", served, told)
	}
}

func TestListenMetricsOff(t *testing.T) {
	if l, err := listenMetrics(t.Context(), ""); l != nil || err != nil {
		t.Errorf("%v, %v", l, err)
	}
}
