package alerts

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/sirupsen/logrus"
	"sigs.k8s.io/yaml"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/internal/fakenode"
	"github.com/nri-blkio/nri-blkio/plugin"
	"github.com/nri-blkio/nri-blkio/plugin/health"
	"github.com/nri-blkio/nri-blkio/plugin/podmetrics"
	"github.com/nri-blkio/nri-blkio/plugin/repair"
	"github.com/nri-blkio/nri-blkio/plugin/weights"
	"github.com/nri-blkio/nri-blkio/policy"
	"github.com/nri-blkio/nri-blkio/test/dashboard"
	"github.com/nri-blkio/nri-blkio/test/node"
)

const rulesFile = "../../deploy/prometheus/alerts.yaml"

// rule is a rule of Prometheus.
type rule struct {
	Record, Alert, Expr string
	Annotations         map[string]string
}

func rules(t *testing.T) (out []rule) {
	t.Helper()
	text, err := os.ReadFile(rulesFile)
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ Groups []struct{ Rules []rule } }
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	for _, g := range file.Groups {
		out = append(out, g.Rules...)
	}
	if len(out) < 10 {
		t.Fatalf("%d rules", len(out))
	}
	return out
}

// TestRunbooks verifies that each alert has a section of a page, and that the page has no others.
func TestRunbooks(t *testing.T) {
	const repository = "https://github.com/nri-blkio/nri-blkio/blob/main/"
	var anchors, sections []string
	for _, r := range rules(t) {
		if r.Alert == "" {
			continue
		}
		file, isOurs := strings.CutPrefix(r.Annotations["runbook_url"], repository)
		page, anchor, _ := strings.Cut(file, "#")
		if !isOurs || page != "docs/how-to/alerts.md" || anchor != strings.ToLower(r.Alert) || r.Annotations["summary"] == "" {
			t.Errorf("%s: %v", r.Alert, r.Annotations)
		}
		anchors = append(anchors, anchor)
	}
	page, err := os.ReadFile("../../docs/how-to/alerts.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`(?m)^## (\w+)$`).FindAllStringSubmatch(string(page), -1) {
		sections = append(sections, strings.ToLower(m[1]))
	}
	slices.Sort(anchors)
	slices.Sort(sections)
	if !slices.Equal(anchors, sections) {
		t.Errorf("alerts %v, sections %v", anchors, sections)
	}
}

var ourMetric = regexp.MustCompile(`\bnri_blkio_[a-z_]+`)

// TestMetricsExist verifies that rules and panels name metrics that docs/reference/metrics.md has.
func TestMetricsExist(t *testing.T) {
	page, err := os.ReadFile("../../docs/reference/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	exprs := map[string]string{}
	for _, r := range rules(t) {
		exprs[r.Alert+r.Record] = r.Expr
	}
	maps.Copy(exprs, queries())
	known := 0
	for where, expr := range exprs {
		for _, name := range ourMetric.FindAllString(expr, -1) {
			name = strings.TrimSuffix(name, "_bucket")
			if known++; !regexp.MustCompile("`" + name + `[\x60{]`).Match(page) {
				t.Errorf("%s: unknown metric %s", where, name)
			}
		}
	}
	if known < 30 {
		t.Errorf("%d metrics", known)
	}
}

// queries returns the queries of the dashboard, with values for its variables.
func queries() map[string]string {
	out := map[string]string{}
	for _, row := range dashboard.Rows() {
		for _, p := range row.Panels {
			for i, q := range p.Queries {
				out[fmt.Sprint(p.Title, " ", i)] = q.At("5m")
			}
		}
	}
	return out
}

// series is a series of promtool's tests.
type series struct {
	Series string `json:"series"`
	Values string `json:"values"`
}

// scrape returns the series of the plugin's own collectors, for a node with a pod that has a limit and a weight. Counters grow.
func scrape(t *testing.T) (out []series) {
	t.Helper()
	k := fakenode.NewKernel(t)
	tree := k.Open(t, t.Context().Done())
	log := logrus.New()
	log.SetOutput(t.Output())
	p, err := plugin.New(plugin.Config{Log: log, Policy: policy.Default(), Storage: fakenode.MountTable{Disks: fakenode.NewDisks()}, Cgroups: tree}, nil)
	if err != nil {
		t.Fatal(err)
	}
	k.Make("pod", true)
	stat := "8:0 rbytes=1 wbytes=2 rios=3 wios=4 dbytes=0 dios=0\n"
	k.Replace("pod", "io.stat", stat)
	k.Replace(".", "io.stat", stat)
	k.Replace("pod", "io.pressure", "some avg10=0.00 avg60=0.00 avg300=0.00 total=5\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=4\n")
	vda := blkio.Disk{Dev: blkio.Dev{Major: 8}, Name: "vda"}
	pod := podmetrics.Pod{Namespace: "prod", Name: "db-0", Cgroup: "pod"}
	for _, key := range []blkio.Key{blkio.Rbps, blkio.Wiops} {
		pod.Limits = append(pod.Limits, blkio.Value{Address: blkio.Address{Key: key, Dev: vda.Dev}, Amount: 1 << 20})
	}
	pod.Parts = []podmetrics.Part{{Cgroup: "pod", Limits: pod.Limits}}
	for _, collectors := range [][]prometheus.Collector{
		{p, &repair.Repairer{}},
		{podmetrics.New(func() []podmetrics.Pod { return []podmetrics.Pod{pod} }, func(blkio.Dev) string { return vda.Name }, tree, nil), weights.Collector{Report: func() *health.Weights {
			return &health.Weights{Disks: []health.CostDisk{{Disk: "vda", Enabled: true, Vrate: 90}}, Shares: []health.Share{{Namespace: "prod", Pod: "db-0", Container: "db", Disk: "vda", Weight: 100, Share: 0.5}}}
		}}},
	} {
		r := prometheus.NewPedanticRegistry()
		r.MustRegister(collectors...)
		families, err := r.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			out = append(out, seriesOf(f)...)
		}
	}
	slices.SortFunc(out, func(a, b series) int { return strings.Compare(a.Series, b.Series) })
	return slices.CompactFunc(out, func(a, b series) bool { return a.Series == b.Series }) // both have the pods that are left out
}

func seriesOf(f *dto.MetricFamily) (out []series) {
	add := func(name string, m *dto.Metric, values string, more ...string) {
		labels := append([]string{`job="nri-blkio"`, `instance="a"`}, more...)
		for _, l := range m.GetLabel() {
			labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
		}
		out = append(out, series{name + "{" + strings.Join(labels, ", ") + "}", values})
	}
	for _, m := range f.GetMetric() {
		switch f.GetType() {
		case dto.MetricType_COUNTER:
			add(f.GetName(), m, fmt.Sprintf("%v+30x20", m.GetCounter().GetValue()))
		case dto.MetricType_HISTOGRAM:
			for _, b := range m.GetHistogram().GetBucket() {
				add(f.GetName()+"_bucket", m, "0+1x20", fmt.Sprintf("le=%q", fmt.Sprint(b.GetUpperBound())))
			}
			add(f.GetName()+"_bucket", m, "0+1x20", `le="+Inf"`)
		default:
			add(f.GetName(), m, fmt.Sprintf("%vx20", m.GetGauge().GetValue()))
		}
	}
	return out
}

// promtool runs promtool.
func promtool(t *testing.T, args ...string) (output string, err error) {
	t.Helper()
	dir, err := node.Prometheus(t.Context(), node.Config{Log: os.Stderr})
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), filepath.Join(dir, "promtool"), args...).CombinedOutput()
	return string(out), err
}

// TestRules verifies the rules by the tests of alerts.yaml: each alert fires, and does not.
func TestRules(t *testing.T) {
	for _, args := range [][]string{{"check", "rules", rulesFile}, {"test", "rules", "alerts.yaml"}} {
		if out, err := promtool(t, args...); err != nil {
			t.Errorf("promtool %s: %v\n%s", args, err, out)
		}
	}
}

// testRules runs a test of promtool.
func testRules(t *testing.T, test map[string]any) (output string, err error) {
	t.Helper()
	file, err := filepath.Abs(rulesFile)
	if err != nil {
		t.Fatal(err)
	}
	text, err := yaml.Marshal(map[string]any{"rule_files": []string{file}, "evaluation_interval": "1m", "tests": []any{test}})
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "test.yaml")
	if err := os.WriteFile(name, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return promtool(t, "test", "rules", name)
}

// hasData is the test that a query returns a number.
func hasData(expr string) map[string]any {
	return map[string]any{
		"expr": "count((" + expr + ") >= 0) > bool 0", "eval_time": "15m", "exp_samples": []any{map[string]any{"labels": "{}", "value": 1}},
	}
}

// TestPanels verifies that each query of the dashboard returns data of the plugin's metrics, and that it would not without them.
func TestPanels(t *testing.T) {
	scraped := scrape(t)
	var tests []any
	for _, expr := range queries() {
		tests = append(tests, hasData(expr))
	}
	if out, err := testRules(t, map[string]any{"interval": "1m", "input_series": scraped, "promql_expr_test": tests}); err != nil || len(tests) < 15 {
		t.Errorf("%d queries: %v\n%s", len(tests), err, out)
	}
	for name, expr := range queries() {
		without := slices.DeleteFunc(slices.Clone(scraped), func(s series) bool {
			metric, _, _ := strings.Cut(s.Series, "{")
			return strings.Contains(expr, metric)
		})
		out, err := testRules(t, map[string]any{"interval": "1m", "input_series": without, "promql_expr_test": []any{hasData(expr)}})
		if isCount := strings.HasSuffix(expr, "or vector(0)"); (err == nil) != isCount {
			t.Errorf("%s without its metrics: %v\n%s", name, err, out)
		}
	}
}

// TestLimitsThatWork verifies that 250 pods at their limits cause no alert: some are held all the time, others most of it or in
// turns. Nor do pods without limits that do much of the I/O themselves, or wait little. Two more pods that wait do, of which one has a limit.
func TestLimitsThatWork(t *testing.T) {
	of := func(metric, values string, labels ...any) series {
		name := fmt.Sprintf(`nri_blkio_%s{job="nri-blkio", instance="a"`, metric)
		for i := 0; i < len(labels); i += 2 {
			name += fmt.Sprintf(", %s=%q", labels[i], fmt.Sprint(labels[i+1]))
		}
		return series{name + "}", values}
	}
	all := []series{
		{`up{job="nri-blkio", instance="a"}`, "1x60"},
		of("connected", "1x60"), of("standby", "0x60"), of("exit_watch", "1x60"),
		of("pods_not_in_force", "0x60"), of("containers", "0x60", "state", "failed"), of("policy_rejected", "0x60"),
		of("disk_bytes_total", "0+15000000x60", "disk", "vda", "op", "write"), of("disk_operations_total", "0+15000x60", "disk", "vda"),
	}
	for i := range 250 {
		// In each minute: the seconds that it waits, and those that its limit takes. The latter are at least as many.
		held := []string{"60", "55", "40", "31"}[i%4]
		waiting, atLimit := "0+"+held+"x60", "0+"+held+"x60"
		if i%5 == 0 { // in turns of 10 minutes
			waiting, atLimit = "0+60x10 600+0x10 600+60x10 1200+0x10 1200+60x20", "0+60x10 600+0x10 600+60x10 1200+0x10 1200+60x20"
		}
		all = append(all,
			of("pod_io_waiting_seconds_total", waiting, "namespace", "prod", "pod", i),
			of("pod_limit_seconds_total", atLimit, "namespace", "prod", "pod", i, "disk", "vda"),
			of("pod_bytes_total", "0+60000x60", "namespace", "prod", "pod", i, "disk", "vda", "op", "write"),
			of("pod_operations_total", "0+60x60", "namespace", "prod", "pod", i, "disk", "vda"),
			of("pod_limit_bytes_per_second", "1000x60", "namespace", "prod", "pod", i, "disk", "vda", "op", "write"))
	}
	test := func(in []series, want float64) {
		t.Helper()
		var tests []any
		for _, at := range []string{"20m", "35m", "50m", "60m"} {
			tests = append(tests, map[string]any{
				"expr": `count(ALERTS{alertstate="firing"}) or vector(0)`, "eval_time": at, "exp_samples": []any{map[string]any{"labels": "{}", "value": want}},
			})
		}
		if out, err := testRules(t, map[string]any{"interval": "1m", "input_series": in, "promql_expr_test": tests}); err != nil {
			t.Error(err, out)
		}
	}
	free := func(name, waiting, operations string) []series {
		labels := []any{"namespace", "prod", "pod", name}
		return []series{of("pod_io_waiting_seconds_total", waiting, labels...), of("pod_operations_total", operations, append(labels, "disk", "vda")...)}
	}
	all = slices.Concat(all, free("scan", "0+60x60", "0+5000x60"), free("quiet", "0+6x60", "0+60x60"))
	test(all, 0)
	limited := of("pod_limit_seconds_total", "0+0x60", "namespace", "prod", "pod", "victim", "disk", "vda")
	test(slices.Concat(all, free("victim", "0+50x60", "0+60x60"), []series{limited}, free("database", "0+50x60", "0+60x60")), 2)
}
