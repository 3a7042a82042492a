package dashboard

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// chartFile is what the chart has in its ConfigMap. make generate copies it to deploy/grafana.
const chartFile = "../../deploy/helm/nri-blkio/files/dashboard.json"

// TestFile verifies that the chart has the dashboard.
func TestFile(t *testing.T) {
	want, err := JSON()
	if err != nil {
		t.Fatal(err)
	}
	if os.Getenv("UPDATE_DASHBOARD") != "" {
		if err := os.WriteFile(chartFile, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(chartFile)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), string(got)); d != "" {
		t.Errorf("%s is outdated; run make generate: -code +file\n%s", chartFile, d)
	}
}

// board has the fields of a dashboard that the rules are about.
type board struct {
	ID         *int
	UID        string
	Editable   bool
	Panels     []panel
	Templating struct{ List []template }
}

type template struct {
	Name, Type string
	Datasource *ref
}

type panel struct {
	ID                       int
	Type, Title, Description string
	Datasource               *ref
	FieldConfig              struct{ Defaults struct{ Unit string } }
	GridPos                  struct{ X, Y, W, H int }
	Targets                  []target
}

type target struct {
	Expr, LegendFormat, RefID string
	Datasource                *ref
	Instant                   bool
}

type ref struct{ Type, UID string }

var chosen = ref{"prometheus", "${datasource}"}

// problems returns which of the usual rules for dashboards a dashboard breaks: those of grafana/dashboard-linter, and that each panel
// has a description.
func problems(b *board) (out []string) {
	add := func(where, what string) { out = append(out, where+": "+what) }
	var names []string
	for _, v := range b.Templating.List {
		names = append(names, v.Name)
		if v.Type == "query" && (v.Datasource == nil || *v.Datasource != chosen) {
			add("variable "+v.Name, "data source")
		}
	}
	for _, name := range []string{"datasource", "node", "namespace", "pod"} {
		if !slices.Contains(names, name) {
			add("variable "+name, "missing")
		}
	}
	if b.ID != nil || b.UID == "" || b.Editable {
		add("dashboard", "id, uid or editable")
	}
	for i := range b.Panels {
		p := &b.Panels[i]
		if p.Type == "row" {
			continue
		}
		switch {
		case p.Title == "" || p.Description == "":
			add(p.Title, "title or description")
		case p.FieldConfig.Defaults.Unit == "":
			add(p.Title, "unit")
		case p.Datasource == nil || *p.Datasource != chosen:
			add(p.Title, "data source")
		case len(p.Targets) == 0:
			add(p.Title, "no query")
		}
		for _, q := range p.Targets {
			out = append(out, problemsOf(p, &q)...)
		}
		for k := range b.Panels[:i] {
			if o := &b.Panels[k]; o.Title == p.Title || o.ID == p.ID || o.Type != "row" && overlap(o, p) {
				add(p.Title, "a duplicate of, or above "+o.Title)
			}
		}
	}
	return out
}

func overlap(a, b *panel) bool {
	p, q := a.GridPos, b.GridPos
	return p.X < q.X+q.W && q.X < p.X+p.W && p.Y < q.Y+q.H && q.Y < p.Y+p.H
}

var (
	isRange    = regexp.MustCompile(`\[([^\]]*)\]`)
	isOfPod    = regexp.MustCompile(`nri_blkio_(pod|weight)_[a-z_]+`)
	isSelector = regexp.MustCompile(`nri_blkio_[a-z_]+(\{[^}]*\})?`)
)

func problemsOf(p *panel, q *target) (out []string) {
	add := func(what string) { out = append(out, p.Title+": "+q.Expr+": "+what) }
	if q.Datasource == nil || *q.Datasource != chosen {
		add("data source")
	}
	if q.LegendFormat == "" || q.RefID == "" || q.Instant != (p.Type == "stat") {
		add("legend, name or kind")
	}
	for _, m := range isRange.FindAllStringSubmatch(q.Expr, -1) {
		if m[1] != "$__rate_interval" {
			add("range")
		}
	}
	if strings.Count(q.Expr, "_total{")+strings.Count(q.Expr, "_bucket{") != strings.Count(q.Expr, "rate(nri_blkio_") {
		add("a counter without rate, or a gauge with it")
	}
	for _, m := range isSelector.FindAllStringSubmatch(q.Expr, -1) {
		hasNode, hasPod := strings.Contains(m[1], "$node"), strings.Contains(m[1], "$namespace") && strings.Contains(m[1], "$pod")
		if !hasNode && m[1] != "" || hasPod != isOfPod.MatchString(m[0]) {
			add("variables of " + m[0])
		}
	}
	return out
}

func read(t *testing.T) *board {
	t.Helper()
	text, err := os.ReadFile(chartFile)
	if err != nil {
		t.Fatal(err)
	}
	var b board
	if err := json.Unmarshal(text, &b); err != nil {
		t.Fatal(err)
	}
	return &b
}

// TestRules verifies that the dashboard breaks no rule.
func TestRules(t *testing.T) {
	b := read(t)
	for _, p := range problems(b) {
		t.Error(p)
	}
	panels := 0
	for _, row := range Rows() {
		panels += 1 + len(row.Panels)
	}
	if len(b.Panels) != panels {
		t.Errorf("%d panels, want %d", len(b.Panels), panels)
	}
}

// TestRulesFind verifies that each rule finds what breaks it.
func TestRulesFind(t *testing.T) {
	of := func(b *board, kind string) *panel {
		return &b.Panels[slices.IndexFunc(b.Panels, func(p panel) bool { return p.Type == kind })]
	}
	series := func(b *board) *panel { return of(b, "timeseries") }
	replace := func(old, with string) func(*board) {
		return func(b *board) { series(b).Targets[0].Expr = strings.Replace(series(b).Targets[0].Expr, old, with, 1) }
	}
	for name, change := range map[string]func(*board){
		"unit":            func(b *board) { series(b).FieldConfig.Defaults.Unit = "" },
		"title":           func(b *board) { series(b).Title = "" },
		"description":     func(b *board) { of(b, "stat").Description = "" },
		"data source":     func(b *board) { series(b).Datasource = &ref{"prometheus", "abc"} },
		"of a query":      func(b *board) { series(b).Targets[0].Datasource = nil },
		"of a variable":   func(b *board) { b.Templating.List[1].Datasource = &ref{"prometheus", "abc"} },
		"variable":        func(b *board) { b.Templating.List = b.Templating.List[:3] },
		"legend":          func(b *board) { series(b).Targets[0].LegendFormat = "" },
		"instant":         func(b *board) { of(b, "stat").Targets[0].Instant = false },
		"range":           replace("$__rate_interval", "5m"),
		"no rate":         replace("rate(", "("),
		"no pod":          replace(`, pod=~"$pod"`, ""),
		"no node":         replace(`instance=~"$node", `, ""),
		"no query":        func(b *board) { series(b).Targets = nil },
		"overlap":         func(b *board) { series(b).GridPos = of(b, "stat").GridPos },
		"duplicate":       func(b *board) { series(b).Title = of(b, "stat").Title },
		"editable":        func(b *board) { b.Editable = true },
		"the same number": func(b *board) { series(b).ID = of(b, "stat").ID },
	} {
		b := read(t)
		if change(b); len(problems(b)) == 0 {
			t.Errorf("%s: no problem", name)
		}
	}
}
