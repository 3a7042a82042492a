package dashboard

import (
	"regexp"
	"strings"
)

// At returns the query for all nodes and pods, with a value for $__rate_interval.
func (q *Query) At(interval string) string {
	return strings.NewReplacer("$__rate_interval", interval, "$node", ".*", "$namespace", ".*", "$pod", ".*").Replace(q.Expr)
}

var labelInLegend = regexp.MustCompile(`\{\{(\w+)\}\}`)

// Name returns the legend of the line with these labels.
func (q *Query) Name(labels map[string]string) string {
	return labelInLegend.ReplaceAllStringFunc(q.Legend, func(name string) string { return labels[strings.Trim(name, "{}")] })
}

// RowMark begins a line of a test's output that is a Measured, as JSON.
const RowMark = "dashboard-row "

// Measured is what a Prometheus has answered to a query of a panel.
type Measured struct {
	Panel string
	Query int // its index in the panel
	Lines []Line
}

// Line is one of the lines of a query.
type Line struct {
	Name   string
	Points []Point // without values that are not numbers
}

// Point is a value at a time, in seconds since the first one of the measurement.
type Point struct{ Seconds, Value float64 }
