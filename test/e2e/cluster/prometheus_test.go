package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/api"
	prometheus "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"

	"github.com/nri-blkio/nri-blkio/test/dashboard"
	"github.com/nri-blkio/nri-blkio/test/e2e/lab"
	"github.com/nri-blkio/nri-blkio/test/payload"
)

const (
	monitorPage = "docs/how-to/monitor.md"
	listen      = "127.0.0.1:9090"

	scrapeInterval = 5 * time.Second
	rateInterval   = "20s" // Grafana's $__rate_interval: four scrapes
)

// monitor is a Prometheus on the node.
type monitor struct {
	*testing.T
	prometheus.API
	targets string // the file of what it is to scrape
}

// startPrometheus starts a Prometheus with the scrape configuration of the page and the rules of the chart. It ends with the test.
func startPrometheus(t *testing.T) monitor {
	t.Helper()
	dir := t.TempDir()
	config, targets, log := filepath.Join(dir, "prometheus.yml"), filepath.Join(dir, "targets.json"), &lab.LogBuffer{}
	lab.WriteFile(t, targets, "[]")
	lab.WriteFile(t, config, fmt.Sprintf("global: {scrape_interval: %[1]s, evaluation_interval: %[1]s}\nrule_files: [%[2]s]\n%[3]s",
		scrapeInterval, filepath.Join(lab.Node.Payload, "deploy/helm/nri-blkio/files/alerts.yaml"), scrapeConfig(t, targets)))
	cmd := exec.Command(filepath.Join(lab.Node.Payload, payload.Prometheus), "--config.file="+config, "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+listen)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // the signal is its status
		if t.Failed() {
			t.Logf("end of the log of Prometheus:\n%s", log.Tail())
		}
	})
	client, err := api.NewClient(api.Config{Address: "http://" + listen})
	if err != nil {
		t.Fatal(err)
	}
	return monitor{t, prometheus.NewAPI(client), targets}
}

// scrapeConfig returns the scrape configuration of the page, with a file in place of the search for pods: Debian's Prometheus is built
// without that.
func scrapeConfig(t *testing.T, targets string) string {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(lab.Node.Payload, monitorPage))
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?ms)^```yaml\n(scrape_configs:.*?)^```$").FindStringSubmatch(string(page))
	const search = "kubernetes_sd_configs:\n      - {role: pod, namespaces: {names: [" + chartNamespace + "]}}\n"
	if block == nil || strings.Count(block[1], search) != 1 {
		t.Fatalf("the scrape configuration of %s is %q", monitorPage, block)
	}
	return strings.Replace(block[1], search, "file_sd_configs: [{files: ["+targets+"]}]\n", 1)
}

// target is one of the targets that Prometheus reads from a file.
type target struct {
	Targets []string          `json:"targets"`
	Labels  map[string]string `json:"labels"`
}

// discover writes the ports of the plugin's pods as targets, with the labels that Prometheus gives to pods that it finds.
//
// Source: kubernetes_sd_config, role pod, in the reference of its configuration.
func (r *release) discover(file string) error {
	r.Helper()
	var list struct {
		Items []struct {
			Metadata struct{ Labels map[string]string }
			Spec     struct {
				NodeName   string
				Containers []struct {
					Ports []struct {
						Name          string
						ContainerPort int
					}
				}
			}
			Status struct{ PodIP string }
		}
	}
	if err := r.get("/api/v1/namespaces/"+chartNamespace+"/pods", &list); err != nil {
		return err
	}
	found := []target{}
	for _, pod := range list.Items {
		for _, c := range pod.Spec.Containers {
			for _, port := range c.Ports {
				found = append(found, target{[]string{net.JoinHostPort(pod.Status.PodIP, strconv.Itoa(port.ContainerPort))}, map[string]string{
					"__meta_kubernetes_pod_container_port_name":          port.Name,
					"__meta_kubernetes_pod_label_app_kubernetes_io_name": pod.Metadata.Labels["app.kubernetes.io/name"],
					"__meta_kubernetes_pod_node_name":                    pod.Spec.NodeName,
				}})
			}
		}
	}
	text, err := json.Marshal(found)
	if err != nil {
		return err
	}
	if before, err := os.ReadFile(file); err != nil || string(before) == string(text) {
		return err
	}
	next := file + ".next" // a file is not read while it is written
	return errors.Join(os.WriteFile(next, text, 0o600), os.Rename(next, file))
}

// by returns the same for a subtest.
func (m monitor) by(t *testing.T) monitor { return monitor{t, m.API, m.targets} }

// ask returns what a query has as values now.
func (m monitor) ask(query string) (model.Vector, error) {
	ctx, cancel := context.WithTimeout(m.Context(), lab.Deadline)
	defer cancel()
	value, _, _, err := m.Query(ctx, query, time.Now())
	if err != nil {
		return nil, fmt.Errorf("query %s: %w", query, err)
	}
	vector, ok := value.(model.Vector)
	if !ok {
		return nil, fmt.Errorf("query %s: no vector: %v", query, value)
	}
	return vector, nil
}

// one returns the one value of a query.
func (m monitor) one(query string) (float64, error) {
	values, err := m.ask(query)
	if err == nil && len(values) != 1 {
		err = fmt.Errorf("query %s: %v, want one value", query, values)
	}
	if err != nil {
		return 0, err
	}
	return float64(values[0].Value), nil
}

// isScrapedBy waits until the parts that run are scraped, each with the job label of the page.
func (r *release) isScrapedBy(m monitor, jobs ...string) {
	r.Helper()
	lab.Within(r.T, clusterDeadline, "the parts are scraped", func() error {
		if err := r.discover(m.targets); err != nil {
			return err
		}
		for _, job := range jobs {
			if up, err := m.one(fmt.Sprintf("up{job=%q, node=\"node\"}", job)); err != nil || up != 1 {
				return fmt.Errorf("job %s: up is %v: %w", job, up, err)
			}
		}
		all, err := m.ask("up")
		if err == nil && len(all) != len(jobs) {
			err = fmt.Errorf("targets: %v, want those of %v", all, jobs)
		}
		return err
	})
}

// panels sends each query of the dashboard over the time since the beginning. Each has an answer with a number. Panels of one number count
// what is wrong, and have 0 at the end.
func (m monitor) panels(since time.Time) (out []dashboard.Measured) {
	m.Helper()
	for _, row := range dashboard.Rows() {
		for _, p := range row.Panels {
			for i, q := range p.Queries {
				lines, err := m.lines(&q, since)
				if err != nil {
					m.Errorf("panel %q, query %s: %v", p.Title, q.Expr, err)
					continue
				}
				if last := lines[0].Points[len(lines[0].Points)-1].Value; p.IsStat && last != 0 {
					m.Errorf("panel %q has %v", p.Title, last)
				}
				out = append(out, dashboard.Measured{Panel: p.Title, Query: i, Lines: lines})
			}
		}
	}
	return out
}

// lines returns the lines that have a number.
func (m monitor) lines(q *dashboard.Query, since time.Time) (out []dashboard.Line, err error) {
	ctx, cancel := context.WithTimeout(m.Context(), lab.Deadline)
	defer cancel()
	value, warnings, _, err := m.QueryRange(ctx, q.At(rateInterval), prometheus.Range{Start: since, End: time.Now(), Step: scrapeInterval})
	if err != nil || len(warnings) > 0 {
		return nil, fmt.Errorf("warnings %v: %w", warnings, err)
	}
	matrix, ok := value.(model.Matrix)
	if !ok {
		return nil, fmt.Errorf("no matrix: %v", value)
	}
	for _, series := range matrix {
		labels := map[string]string{}
		for name, value := range series.Metric {
			labels[string(name)] = string(value)
		}
		line := dashboard.Line{Name: q.Name(labels)}
		for _, v := range series.Values {
			if f := float64(v.Value); !math.IsNaN(f) && !math.IsInf(f, 0) {
				line.Points = append(line.Points, dashboard.Point{Seconds: v.Timestamp.Time().Sub(since).Seconds(), Value: f})
			}
		}
		if len(line.Points) > 0 {
			out = append(out, line)
		}
	}
	if len(out) == 0 {
		return nil, errors.New("no data")
	}
	return out, nil
}

// isQuiet verifies that all rules can be evaluated, that no alert has fired, and that none is about to.
func (m monitor) isQuiet() {
	m.Helper()
	ctx, cancel := context.WithTimeout(m.Context(), lab.Deadline)
	defer cancel()
	rules, err := m.Rules(ctx, nil)
	if err != nil {
		m.Fatal(err)
	}
	n := 0
	for _, group := range rules.Groups {
		for _, r := range group.Rules {
			n++
			switch r := r.(type) {
			case prometheus.RecordingRule:
				if r.Health != prometheus.RuleHealthGood {
					m.Errorf("rule %s: %s: %s", r.Name, r.Health, r.LastError)
				}
			case prometheus.AlertingRule:
				if r.Health != prometheus.RuleHealthGood {
					m.Errorf("alert %s: %s: %s", r.Name, r.Health, r.LastError)
				}
			}
		}
	}
	if n < 10 {
		m.Errorf("%d rules", n)
	}
	if fired, err := m.ask(`count_over_time(ALERTS{alertstate="firing"}[1h])`); err != nil || len(fired) > 0 {
		m.Errorf("alerts have fired: %v, %v", fired, err)
	}
	lab.Eventually(m.T, "no alert is about to fire", func() error {
		pending, err := m.ask(`ALERTS`)
		if err == nil && len(pending) > 0 {
			err = fmt.Errorf("%v", pending)
		}
		return err
	})
}

// report prints what was measured, for the picture of the dashboard.
func (m monitor) report(all []dashboard.Measured) {
	m.Helper()
	for _, one := range all {
		text, err := json.Marshal(one)
		if err != nil {
			m.Fatal(err)
		}
		fmt.Printf("%s%s\n", dashboard.RowMark, text)
	}
}
