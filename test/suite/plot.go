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
)

// Pixels of docs/images/neighbour.svg.
const (
	plotWidth = 720
	plotLeft  = 250 // of the bars
	plotRight = 90  // for the figure behind a bar
	plotTop   = 34
	barHeight = 26
	barStep   = 42 // from one bar to the next
)

// The template is HTML's, which escapes text in SVG as well.
var plot = template.Must(template.New("plot").Parse(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {{.Width}} {{.Height}}" font-family="sans-serif" font-size="14" role="img">
<title>{{.Title}}</title>
<rect width="{{.Width}}" height="{{.Height}}" fill="white"/>
<text x="12" y="20" font-weight="bold">{{.Title}}</text>
{{- range .Bars}}
<text x="{{.Left}}" y="{{.Base}}" dx="-10" text-anchor="end">{{.Label}}</text>
<rect x="{{.Left}}" y="{{.Top}}" width="{{.Width}}" height="{{.Height}}" fill="#2471a3"/>
<line x1="{{.Low}}" x2="{{.High}}" y1="{{.Middle}}" y2="{{.Middle}}" stroke="black" stroke-width="2"/>
<text x="{{.High}}" y="{{.Base}}" dx="8">{{.Value}}</text>
{{- end}}
<text x="12" y="{{.Foot}}" fill="#555" font-size="12">{{.Caption}}</text>
</svg>
`))

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
	bars, err := barsOf(o.neighbours)
	if err != nil {
		return err
	}
	height := plotTop + len(bars)*barStep + 30
	kernel, _, _ := strings.Cut(o.node, ",") // the rest has no room
	var text bytes.Buffer
	err = plot.Execute(&text, map[string]any{
		"Title": "Latency of a pod's 4 KiB reads, 99th percentile, ms",
		"Width": plotWidth, "Height": height, "Foot": height - 12, "Bars": bars,
		"Caption": "Median and spread of three runs of make neighbour; " + kernel + ", commit " + commit,
	})
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, text.Bytes(), 0o644)
}

func barsOf(rows []string) ([]bar, error) {
	var bars []bar
	var values [][3]float64
	greatest := 0.0
	for i, row := range rows {
		label, rest, _ := strings.Cut(row, "|")
		v, err := figures(rest)
		if err != nil {
			return nil, fmt.Errorf("row %q: %w", row, err)
		}
		greatest = max(greatest, v[2])
		values = append(values, v)
		top := plotTop + i*barStep
		bars = append(bars, bar{
			Label: label, Value: strconv.FormatFloat(v[0], 'g', -1, 64),
			Left: plotLeft, Top: top, Middle: top + barHeight/2, Base: top + barHeight/2 + 5, Height: barHeight,
		})
	}
	for i, v := range values {
		pixels := func(f float64) int { return int(f * (plotWidth - plotLeft - plotRight) / greatest) }
		bars[i].Width, bars[i].Low, bars[i].High = max(1, pixels(v[0])), plotLeft+pixels(v[1]), plotLeft+pixels(v[2])
	}
	return bars, nil
}

// figures reads "median|least|greatest".
func figures(text string) (v [3]float64, err error) {
	fields := strings.Split(text, "|")
	if len(fields) != len(v) {
		return v, errors.New("want three figures")
	}
	for i, f := range fields {
		if v[i], err = strconv.ParseFloat(f, 64); err != nil {
			return v, err
		}
	}
	if v[2] <= 0 {
		return v, errors.New("the greatest figure is not above 0")
	}
	return v, nil
}
