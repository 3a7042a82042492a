package generated

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// RowMark begins a line of a test's output that is a Row.
const RowMark = "weights-row "

// Row has the measurements of one case of a test, in several rounds.
type Row struct {
	Test   string               // the name of the test
	Name   string               // of the case, as tables have it
	Bar    string               `json:",omitempty"` // its label in the plot; "" if it is not plotted
	Rounds map[string][]float64 // by figure, one value for each round
}

// Add adds the figures of one round.
func (r *Row) Add(figures map[string]float64) {
	if r.Rounds == nil {
		r.Rounds = make(map[string][]float64)
	}
	for name, v := range figures {
		r.Rounds[name] = append(r.Rounds[name], v)
	}
}

// Figure returns a figure of all rounds, and false if the case does not have it.
func (r *Row) Figure(name string) (Figure, bool) {
	values := r.Rounds[name]
	if len(values) == 0 {
		return Figure{}, false
	}
	sorted := slices.Sorted(slices.Values(values))
	return Figure{Median: sorted[len(sorted)/2], Least: sorted[0], Greatest: sorted[len(sorted)-1]}, true
}

// Print writes the row as a line that ParseRow reads.
func (r *Row) Print(w io.Writer) error {
	data, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("row %q: %w", r.Name, err) // a figure that is not a number
	}
	_, err = fmt.Fprintf(w, "%s%s\n", RowMark, data)
	return err
}

// ParseRow reads what follows RowMark in a line.
func ParseRow(text string) (Row, error) {
	var r Row
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return Row{}, fmt.Errorf("row %q: %w", strings.TrimSpace(text), err)
	}
	return r, nil
}

// String returns the case and its figures, for a log.
func (r *Row) String() string {
	out := []string{r.Name}
	for _, name := range slices.Sorted(maps.Keys(r.Rounds)) {
		f, _ := r.Figure(name)
		out = append(out, name+" "+f.String())
	}
	return strings.Join(out, " | ")
}

// Figure is the median of several rounds, with its spread.
type Figure struct{ Median, Least, Greatest float64 }

// String returns "1487 (1480–1490)".
func (f Figure) String() string {
	return fmt.Sprintf("%s (%s–%s)", Number(f.Median), Number(f.Least), Number(f.Greatest))
}

// Number formats a value with at least three digits that count, and without an exponent.
func Number(v float64) string {
	if v >= 999.5 {
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}
