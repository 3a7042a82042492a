package suite

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nri-blkio/nri-blkio/test/dashboard"
)

// measuredPanels returns the output of a test in which each query has two lines, and the first one of a panel a gap.
func measuredPanels(t *testing.T) string {
	t.Helper()
	var out strings.Builder
	for _, row := range dashboard.Rows() {
		for _, p := range row.Panels {
			for i, q := range p.Queries {
				m := dashboard.Measured{Panel: p.Title, Query: i}
				for k, pod := range []string{"a", "<b>"} {
					line := dashboard.Line{Name: q.Name(map[string]string{"namespace": "prod", "pod": pod, "disk": "vdb", "op": "write"})}
					for s := 0.0; s <= 200; s += 5 {
						if k == 1 || s < 50 || s > 100 {
							line.Points = append(line.Points, dashboard.Point{Seconds: s, Value: float64(k << 20)})
						}
					}
					m.Lines = append(m.Lines, line)
				}
				text, err := json.Marshal(m)
				if err != nil {
					t.Fatal(err)
				}
				out.WriteString(dashboard.RowMark + string(text) + "\n")
			}
		}
	}
	return out.String()
}

// TestWriteDashboard verifies that the picture has each panel with its unit and its legend, and that nothing is drawn of less.
func TestWriteDashboard(t *testing.T) {
	file := filepath.Join(t.TempDir(), "images", "dashboard.svg")
	rows := measuredPanels(t)
	var o outcome
	o.count([]byte(rows + "--- PASS: TestMonitoring (1.00s)\n"))
	o.node = "kernel 6.12, containerd 2"
	if err := writeDashboard(file, "c1", o); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	got := string(text)
	want := []string{
		"not by Grafana; kernel 6.12, commit c1", "prod/&lt;b&gt; vdb write limit", " stroke-dasharray=", ">1 MiB/s<", ">3:00<", ` fill="#37872d">0<`, " M310 170 L",
	}
	for _, row := range dashboard.Rows() {
		want = append(want, row.Title)
		for _, p := range row.Panels {
			want = append(want, ">"+p.Title+"<")
		}
	}
	for _, text := range want {
		if !strings.Contains(got, text) {
			t.Errorf("the picture has no %q:\n%s", text, got)
		}
	}
	first, _, _ := strings.Cut(rows, "\n")
	for name, o := range map[string]outcome{
		"one panel": {panels: []string{strings.TrimPrefix(first, dashboard.RowMark)}}, "no JSON": {panels: []string{"x"}}, "a failure": {panels: o.panels, failed: 1},
	} {
		if err := writeDashboard(file, "c2", o); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// TestFormats verifies the marks of axes.
func TestFormats(t *testing.T) {
	for _, tt := range []struct {
		unit                  string
		greatest, step, value float64
		want                  string
	}{
		{"percentunit", 0.97, 0.5, 0.5, "50 %"},
		{"binBps", 3 << 20, 1 << 20, 2 << 20, "2 MiB/s"},
		{"binBps", 0, 0.5, 0, "0 B/s"},
		{"s", 0.0042, 0.002, 0.002, "2 ms"},
		{"iops", 420, 200, 400, "400 io/s"},
		{"short", 3, 1, 2, "2"},
	} {
		format, base, err := formatOf(tt.unit, tt.greatest)
		if err != nil {
			t.Fatal(err)
		}
		if got := format(tt.value); got != tt.want {
			t.Errorf("%v %s is %q, want %q", tt.value, tt.unit, got, tt.want)
		}
		if got := niceStep(max(tt.greatest/base, 1)) * base; tt.greatest > 0 && got != tt.step {
			t.Errorf("the step to %v %s is %v, want %v", tt.greatest, tt.unit, got, tt.step)
		}
	}
	if _, _, err := formatOf("furlongs", 1); err == nil {
		t.Error("an unknown unit: no error")
	}
}
