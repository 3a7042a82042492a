package suite

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/grafana/grafana-foundation-sdk/go/units"

	"github.com/nri-blkio/nri-blkio/test/dashboard"
)

// Pixels of docs/images/dashboard.svg.
const (
	boardWidth  = 1080
	statHeight  = 96
	curveTop    = 40
	curveBottom = 170 // of the curves; the legend is below
	curveLeft   = 84  // of the curves, within a panel
	legendTop   = 204
	legendStep  = 18
)

// colors returns those of lines. Red stands for what is bad.
func colors() []string {
	return []string{"#1f78c1", "#ef843c", "#508642", "#ba43a9", "#cca300", "#447ebc", "#6d1f62", "#3f6833", "#967302", "#0a437c", "#58140c", "#99440a"}
}

// boardRow is a row of panels.
type boardRow struct {
	Title string
	Base  int
	Tiles []tile
}

// tile is a panel in pixels: a value, or curves.
type tile struct {
	Title                 string
	X, Y, Width, Height   int
	Inner, Middle, Bottom int
	Value, Color          string
	Ticks                 []tick
	Times                 []tick
	Curves                []curve
}

// tick is a mark of an axis.
type tick struct {
	Label             string
	X, Y, Left, Right int
}

// curve is a line with its entry in the legend.
type curve struct {
	Name, Color, Path string
	IsDashed          bool // a limit, as in the dashboard
	X, End, Y         int
}

// writeDashboard draws the dashboard by the answers that TestMonitoring has got to its queries, if it was played, and passed.
func writeDashboard(file, commit string, o outcome) error {
	switch {
	case len(o.panels) == 0:
		return nil
	case o.failed > 0:
		return fmt.Errorf("%s stays as it is: %s", file, strings.Join(o.failures, ", "))
	}
	lines := map[string][]dashboard.Line{} // by the title of the panel
	for _, text := range o.panels {
		var m dashboard.Measured
		if err := json.Unmarshal([]byte(text), &m); err != nil {
			return fmt.Errorf("row %q: %w", text, err)
		}
		lines[m.Panel] = append(lines[m.Panel], m.Lines...)
	}
	rows, height, err := boardOf(lines)
	if err != nil {
		return err
	}
	return writeSVG(file, "dashboard", boardWidth, height, map[string]any{
		"Title": "The dashboard of nri-blkio", "Rows": rows,
		"Caption": "Rendered by make table T=dashboard, not by Grafana; " + measuredOn(commit, o),
	})
}

// boardOf arranges the panels as the dashboard does.
func boardOf(lines map[string][]dashboard.Line) (rows []boardRow, height int, err error) {
	for _, row := range dashboard.Rows() {
		out := boardRow{Title: row.Title, Base: height + 22}
		height += 30
		for len(row.Panels) > 0 {
			n := min(2, len(row.Panels))
			if row.Panels[0].IsStat {
				n = min(4, len(row.Panels))
			}
			tiles, err := tilesOf(row.Panels[:n], lines, height)
			if err != nil {
				return nil, 0, err
			}
			out.Tiles, row.Panels = append(out.Tiles, tiles...), row.Panels[n:]
			height += tiles[0].Height
		}
		rows = append(rows, out)
	}
	return rows, height, nil
}

// tilesOf returns panels that are beside one another, and of one height.
func tilesOf(panels []dashboard.Panel, lines map[string][]dashboard.Line, top int) (tiles []tile, err error) {
	height := 0
	for i, p := range panels {
		t := tile{Title: p.Title, Y: top, Width: boardWidth / 2, Height: statHeight}
		if p.IsStat {
			t.Width = boardWidth / 4
		}
		t.X, t.Inner, t.Middle = i*t.Width, t.Width-8, t.Width/2
		of := lines[p.Title]
		if len(of) == 0 {
			return nil, fmt.Errorf("panel %q: no data", p.Title)
		}
		if p.IsStat {
			t.Value, t.Color = statOf(of[0])
		} else if err := t.plot(p.Unit, of); err != nil {
			return nil, fmt.Errorf("panel %q: %w", p.Title, err)
		}
		height = max(height, t.Height)
		tiles = append(tiles, t)
	}
	for i := range tiles {
		tiles[i].Height, tiles[i].Bottom = height, height-8
	}
	return tiles, nil
}

// statOf returns the last value of a line, and its color.
func statOf(line dashboard.Line) (value, color string) {
	last := line.Points[len(line.Points)-1].Value
	if last >= 1 {
		return number(last), "#c4162a"
	}
	return number(last), "#37872d"
}

// plot adds the axes, and a curve for each line.
func (t *tile) plot(unit string, lines []dashboard.Line) error {
	greatest, last := 0.0, 0.0
	for _, l := range lines {
		for _, p := range l.Points {
			greatest, last = max(greatest, p.Value), max(last, p.Seconds)
		}
	}
	if last == 0 {
		return errors.New("one time only")
	}
	format, base, err := formatOf(unit, greatest)
	if err != nil {
		return err
	}
	step := niceStep(cmp.Or(greatest, base)/base) * base
	top, right := step*math.Ceil(cmp.Or(greatest, step)/step), t.Width-24
	y := func(v float64) int { return curveBottom - int(v/top*(curveBottom-curveTop)) }
	x := func(s float64) int { return curveLeft + int(s/last*float64(right-curveLeft)) }
	for v := 0.0; v <= top*1.001; v += step {
		t.Ticks = append(t.Ticks, tick{Label: format(v), Y: y(v), Left: curveLeft, Right: right})
	}
	for s := 0.0; s <= last; s += 30 * math.Ceil(last/30/6) {
		t.Times = append(t.Times, tick{Label: fmt.Sprintf("%d:%02d", int(s)/60, int(s)%60), X: x(s), Y: curveBottom})
	}
	slices.SortStableFunc(lines, func(a, b dashboard.Line) int { return strings.Compare(a.Name, b.Name) })
	for i, l := range lines {
		c := curve{Name: l.Name, Color: colors()[i%len(colors())], IsDashed: strings.HasSuffix(l.Name, " limit")}
		c.X, c.Y = 16+i%2*(t.Width/2), legendTop+i/2*legendStep
		c.End = c.X + 20
		var path strings.Builder
		for k, p := range l.Points {
			move := " L"
			if k == 0 || p.Seconds-l.Points[k-1].Seconds > 15 { // without values for three scrapes
				move = " M"
			}
			fmt.Fprintf(&path, "%s%d %d", move, x(p.Seconds), y(max(0, p.Value)))
		}
		c.Path = strings.TrimSpace(path.String())
		t.Curves = append(t.Curves, c)
	}
	t.Height = legendTop + (len(lines)+1)/2*legendStep + 4
	return nil
}

// niceStep returns the distance of about four marks of an axis: 1, 2 or 5 times a power of ten.
func niceStep(greatest float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(greatest/4)))
	for _, n := range []float64{1, 2, 5} {
		if n*power >= greatest/4 {
			return n * power
		}
	}
	return 10 * power
}

// number formats a value of an axis.
func number(v float64) string { return strconv.FormatFloat(v, 'g', 4, 64) }

// formatOf returns how values of a unit are written if this is the greatest one, and the value of which marks are round numbers.
func formatOf(unit string, greatest float64) (format func(float64) string, base float64, err error) {
	suffix := ""
	base = 1
	switch unit {
	case units.PercentUnit:
		suffix, base = " %", 0.01
	case units.BytesPerSecondIEC:
		suffix = " B/s"
		for _, s := range []string{" KiB/s", " MiB/s", " GiB/s"} {
			if greatest >= 1024*base {
				suffix, base = s, 1024*base
			}
		}
	case units.IOOpsPerSecond:
		suffix = " io/s"
	case units.OpsPerSecond:
		suffix = " ops/s"
	case units.Seconds:
		if suffix = " s"; greatest < 1 {
			suffix, base = " ms", 0.001
		}
	case units.Short:
	default:
		return nil, 0, fmt.Errorf("unknown unit %q", unit)
	}
	return func(v float64) string { return number(math.Round(v/base*1e6)/1e6) + suffix }, base, nil
}
