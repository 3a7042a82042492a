package suite

import (
	"bytes"
	"errors"
	"fmt"
	"html/template"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/nri-blkio/nri-blkio/test/generated"
)

// Pixels of docs/images/neighbour.svg and docs/images/weights.svg.
const (
	plotWidth = 720
	plotLeft  = 250 // of the bars, at least
	plotGap   = 10  // between a label and its bar
	plotChar  = 8   // for a character of a label, most of which are narrower
	plotRight = 90  // for the figure behind a bar
	plotTop   = 34  // for the title of a panel
	barHeight = 26
	barStep   = 42 // from one bar to the next
)

// plots are the templates of plots. They are HTML's, which escapes text in SVG as well.
var plots = template.Must(template.New("plots").Parse(`
{{- define "head" -}}
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {{.Width}} {{.Height}}" font-family="sans-serif" font-size="14" role="img">
<title>{{.Title}}</title>
<rect width="{{.Width}}" height="{{.Height}}" fill="white"/>
{{- end}}
{{- define "foot"}}
<text x="12" y="{{.Foot}}" fill="#555" font-size="12">{{.Caption}}</text>
</svg>
{{end}}
{{- define "bars" -}}
{{template "head" .}}
{{- range .Panels}}
<text x="12" y="{{.Head}}" font-weight="bold">{{.Title}}</text>
{{- range .Bars}}
<text x="{{.Left}}" y="{{.Base}}" dx="-10" text-anchor="end">{{.Label}}</text>
<rect x="{{.Left}}" y="{{.Top}}" width="{{.Width}}" height="{{.Height}}" fill="#2471a3"/>
<line x1="{{.Low}}" x2="{{.High}}" y1="{{.Middle}}" y2="{{.Middle}}" stroke="black" stroke-width="2"/>
<text x="{{.High}}" y="{{.Base}}" dx="8">{{.Value}}</text>
{{- end}}
{{- end}}
{{- template "foot" .}}
{{- end}}
{{- define "dashboard" -}}
{{template "head" .}}
{{- range .Rows}}
<text x="12" y="{{.Base}}" font-weight="bold">{{.Title}}</text>
{{- range .Tiles}}
<svg x="{{.X}}" y="{{.Y}}" width="{{.Width}}" height="{{.Height}}" font-size="11">
<rect x="4" y="4" width="{{.Inner}}" height="{{.Bottom}}" fill="none" stroke="#ddd"/>
<text x="14" y="24" font-size="13">{{.Title}}</text>
{{- if .Value}}
<text x="{{.Middle}}" y="72" text-anchor="middle" font-size="34" fill="{{.Color}}">{{.Value}}</text>
{{- end}}
{{- range .Ticks}}
<line x1="{{.Left}}" x2="{{.Right}}" y1="{{.Y}}" y2="{{.Y}}" stroke="#eee"/>
<text x="{{.Left}}" y="{{.Y}}" dx="-6" dy="4" text-anchor="end">{{.Label}}</text>
{{- end}}
{{- range .Times}}
<text x="{{.X}}" y="{{.Y}}" dy="16" text-anchor="middle">{{.Label}}</text>
{{- end}}
{{- range .Curves}}
<path d="{{.Path}}" fill="none" stroke="{{.Color}}" stroke-width="1.5"{{if .IsDashed}} stroke-dasharray="6 4"{{end}}/>
<line x1="{{.X}}" x2="{{.End}}" y1="{{.Y}}" y2="{{.Y}}" stroke="{{.Color}}" stroke-width="3"{{if .IsDashed}} stroke-dasharray="6 4"{{end}}/>
<text x="{{.End}}" y="{{.Y}}" dx="6" dy="4">{{.Name}}</text>
{{- end}}
</svg>
{{- end}}
{{- end}}
{{- template "foot" .}}
{{- end}}
`))

// panel is a group of bars that share a scale.
type panel struct {
	Title string
	Rows  []plotted
	Head  int // baseline of the title, in pixels
	Bars  []bar
}

// plotted is a figure to plot.
type plotted struct {
	label  string
	figure generated.Figure
}

// bar is one of the plot, in pixels.
type bar struct {
	Label, Value             string
	Left, Top, Middle, Base  int
	Width, Height, Low, High int
}

// writePlot draws the rows of TestNeighbour, "label|median|least|greatest" in milliseconds,
// if it was played, and passed.
func writePlot(file, commit string, o outcome) error {
	switch {
	case len(o.neighbours) == 0:
		return nil
	case o.failed > 0:
		return fmt.Errorf("%s stays as it is: %s", file, strings.Join(o.failures, ", "))
	}
	p := panel{Title: "Latency of a pod's 4 KiB reads, 99th percentile, ms"}
	for _, row := range o.neighbours {
		label, rest, _ := strings.Cut(row, "|")
		f, err := figures(rest)
		if err != nil {
			return fmt.Errorf("row %q: %w", row, err)
		}
		p.Rows = append(p.Rows, plotted{label, f})
	}
	return draw(file, p.Title, caption("three runs of make table T=neighbour", commit, o), p)
}

// caption returns the sentence below the plot: what was measured, and where.
func caption(runs, commit string, o outcome) string {
	return "Median and spread of " + runs + "; " + measuredOn(commit, o)
}

// measuredOn returns the kernel and the commit.
func measuredOn(commit string, o outcome) string {
	kernel, _, _ := strings.Cut(o.node, ",") // the rest has no room
	return kernel + ", commit " + commit
}

// draw writes panels one below the other.
func draw(file, title, caption string, panels ...panel) error {
	top, left := 0, plotLeft
	for i := range panels {
		for _, r := range panels[i].Rows {
			left = max(left, 2*plotGap+plotChar*len(r.label))
		}
	}
	for i := range panels {
		p := &panels[i]
		p.Head = top + 20
		var err error
		if p.Bars, err = barsOf(p.Rows, left, top+plotTop); err != nil {
			return fmt.Errorf("plot %q: %w", p.Title, err)
		}
		top += plotTop + len(p.Bars)*barStep
	}
	return writeSVG(file, "bars", plotWidth, top, map[string]any{"Title": title, "Panels": panels, "Caption": caption})
}

// writeSVG writes a plot of a template. Its caption is below the height.
func writeSVG(file, name string, width, height int, data map[string]any) error {
	data["Width"], data["Height"], data["Foot"] = width, height+30, height+18
	var text bytes.Buffer
	if err := plots.ExecuteTemplate(&text, name, data); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, text.Bytes(), 0o644)
}

// barsOf returns the bars of figures. The greatest value fills the width.
func barsOf(rows []plotted, left, top int) ([]bar, error) {
	greatest := 0.0
	for _, r := range rows {
		if r.figure.Greatest <= 0 {
			return nil, fmt.Errorf("row %q: the greatest figure is not above 0", r.label)
		}
		greatest = max(greatest, r.figure.Greatest)
	}
	pixels := func(f float64) int { return int(f * float64(plotWidth-left-plotRight) / greatest) }
	var bars []bar
	for i, r := range rows {
		top := top + i*barStep
		bars = append(bars, bar{
			Label: r.label, Value: generated.Number(r.figure.Median),
			Left: left, Top: top, Middle: top + barHeight/2, Base: top + barHeight/2 + 5,
			Width: max(1, pixels(r.figure.Median)), Height: barHeight, Low: left + pixels(r.figure.Least), High: left + pixels(r.figure.Greatest),
		})
	}
	return bars, nil
}

// figures reads "median|least|greatest".
func figures(text string) (generated.Figure, error) {
	fields := strings.Split(text, "|")
	var v [3]float64
	if len(fields) != len(v) {
		return generated.Figure{}, errors.New("want three figures")
	}
	for i, f := range fields {
		var err error
		if v[i], err = strconv.ParseFloat(f, 64); err != nil {
			return generated.Figure{}, err
		}
	}
	return generated.Figure{Median: v[0], Least: v[1], Greatest: v[2]}, nil
}
