// Package dashboard makes the Grafana dashboard of nri-blkio.
package dashboard

import (
	"encoding/json"
	"slices"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/common"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/stat"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"
	"github.com/grafana/grafana-foundation-sdk/go/units"
)

// Query is a query of a panel, with the legend of its lines.
type Query struct{ Expr, Legend string }

// Panel is a panel of the dashboard.
type Panel struct {
	Title, Description, Unit string
	IsStat                   bool // one number, which is bad above 0
	Queries                  []Query
}

// Row is a row of panels.
type Row struct {
	Title  string
	Panels []Panel
}

// The selectors of the variables.
const (
	onNode = `instance=~"$node"`
	ofPod  = onNode + `, namespace=~"$namespace", pod=~"$pod"`
)

// Rows returns the panels. Queries with a part for each pod show the ten largest ones.
func Rows() []Row { return slices.Concat(podRows(), nodeRows()) }

func podRows() []Row {
	return []Row{
		{"State", []Panel{
			{"Nodes without a connection", "Nodes whose plugin answers, and neither has a connection to the runtime nor stands by.", units.Short, true, []Query{
				{`count(nri_blkio_connected{` + onNode + `} + nri_blkio_standby == 0) or vector(0)`, "nodes"},
			}},
			{"Limits not in force", "Pods with a limit that could not be decided or written, and containers with a request that is not granted.", units.Short, true, []Query{
				{`sum(nri_blkio_pods_not_in_force{` + onNode + `}) + sum(nri_blkio_containers{` + onNode + `, state="failed"})`, "pods and containers"},
			}},
			{"Weights without effect", "Containers and pods with a weight that the kernel does not follow on a disk.", units.Short, true, []Query{
				{`count(nri_blkio_weight_share_ratio{` + ofPod + `} == 0) or vector(0)`, "weights"},
			}},
			{"Pods left out", "Pods that this dashboard does not show, or whose bytes and operations it does not, because their node has too many series.", units.Short, true, []Query{
				{`sum(nri_blkio_pods_left_out{` + onNode + `})`, "pods"},
			}},
		}},
		{"Pods", []Panel{
			{"Waiting that limits do not explain", "Least part of the time in which some thread of the pod waited for I/O for another cause than the pod's limits, if it has any: for others, or for the disk. `nri-blkio why` names it.", units.PercentUnit, false, []Query{
				{`topk(10, clamp_min(rate(nri_blkio_pod_io_waiting_seconds_total{` + ofPod + `}[$__rate_interval]) - sum without (disk) (rate(nri_blkio_pod_limit_seconds_total{` + ofPod + `}[$__rate_interval])), 0) or rate(nri_blkio_pod_io_waiting_seconds_total{` + ofPod + `}[$__rate_interval]))`, "{{namespace}}/{{pod}}"},
			}},
			{"Waiting, and what limits explain", "Part of the time in which some thread of the pod waited for I/O, and the largest part of the time that its limits can have held it. A pod at its limit has both at the same height.", units.PercentUnit, false, []Query{
				{`topk(10, rate(nri_blkio_pod_io_waiting_seconds_total{` + ofPod + `}[$__rate_interval]))`, "{{namespace}}/{{pod}} waits"},
				{`topk(10, clamp_max(sum without (disk) (rate(nri_blkio_pod_limit_seconds_total{` + ofPod + `}[$__rate_interval])), 1))`, "{{namespace}}/{{pod}} at its limits"},
			}},
			{"Bytes", "Bytes per second of pods, and the limits of pods as a whole.", units.BytesPerSecondIEC, false, []Query{
				{`topk(10, rate(nri_blkio_pod_bytes_total{` + ofPod + `}[$__rate_interval]))`, "{{namespace}}/{{pod}} {{disk}} {{op}}"},
				{`topk(10, nri_blkio_pod_limit_bytes_per_second{` + ofPod + `})`, "{{namespace}}/{{pod}} {{disk}} {{op}} limit"},
			}},
			{"Operations", "Operations per second of pods, and the limits of pods as a whole.", units.IOOpsPerSecond, false, []Query{
				{`topk(10, rate(nri_blkio_pod_operations_total{` + ofPod + `}[$__rate_interval]))`, "{{namespace}}/{{pod}} {{disk}}"},
				{`topk(10, nri_blkio_pod_limit_operations_per_second{` + ofPod + `})`, "{{namespace}}/{{pod}} {{disk}} {{op}} limit"},
			}},
			{"Weights", "Shares of the disks that weights represent.", units.PercentUnit, false, []Query{
				{`topk(10, nri_blkio_weight_share_ratio{` + ofPod + `})`, "{{namespace}}/{{pod}} {{container}} {{disk}}"},
			}},
			{"Warnings", "Running containers whose limits come with a warning.", units.Short, false, []Query{
				{`sum by (kind) (nri_blkio_warnings{` + onNode + `})`, "{{kind}}"},
			}},
		}},
	}
}

func nodeRows() []Row {
	return []Row{
		{"Disks that pods use", []Panel{
			{"Bytes of the node", "Bytes per second of everything on the node.", units.BytesPerSecondIEC, false, []Query{
				{`rate(nri_blkio_disk_bytes_total{` + onNode + `}[$__rate_interval])`, "{{instance}} {{disk}} {{op}}"},
			}},
			{"Operations of the node", "Operations per second of everything on the node.", units.IOOpsPerSecond, false, []Query{
				{`rate(nri_blkio_disk_operations_total{` + onNode + `}[$__rate_interval])`, "{{instance}} {{disk}}"},
			}},
			{"Rate of io.cost", "The rate at which io.cost gives out cost. Below 1 for long, the disk does less than its model says.", units.PercentUnit, false, []Query{
				{`nri_blkio_iocost_vrate_ratio{` + onNode + `}`, "{{instance}} {{disk}}"},
			}},
		}},
		{"Plugin", []Panel{
			{"Time that starts wait", "99th percentile of the time that the runtime waits for an answer.", units.Seconds, false, []Query{
				{`histogram_quantile(0.99, sum by (le, handler) (rate(nri_blkio_handler_seconds_bucket{` + onNode + `}[$__rate_interval])))`, "{{handler}}"},
			}},
			{"Rejected containers", "Rejected creations of containers, each attempt of the kubelet counted.", units.OpsPerSecond, false, []Query{
				{`sum by (kind) (rate(nri_blkio_refused_containers_total{` + onNode + `}[$__rate_interval]))`, "{{kind}}"},
			}},
			{"Files that another container owns", "Files with a writer that does not own them. They move to their writers.", units.Short, false, []Query{
				{`sum by (state) (nri_blkio_writeback_files{` + onNode + `})`, "{{state}}"},
			}},
		}},
	}
}

// JSON returns the dashboard as Grafana imports it.
func JSON() ([]byte, error) {
	//nolint:staticcheck // its successor makes dashboards for Grafana 12 and later only
	builder := dashboard.NewDashboardBuilder("nri-blkio").Uid("nri-blkio").Tags([]string{"kubernetes", "storage"}).
		Description("Block I/O limits and weights of pods, and whether pods wait for others.").
		Time("now-3h", "now").Refresh("1m").Timezone(common.TimeZoneBrowser).Readonly().
		WithVariable(dashboard.NewDatasourceVariableBuilder("datasource").Label("Data source").Type("prometheus")).
		WithVariable(variable("node", "Node", "label_values(nri_blkio_connected, instance)")).
		WithVariable(variable("namespace", "Namespace", `label_values(nri_blkio_pod_operations_total{`+onNode+`}, namespace)`)).
		WithVariable(variable("pod", "Pod", `label_values(nri_blkio_pod_operations_total{`+onNode+`, namespace=~"$namespace"}, pod)`))
	id := uint32(0)
	for _, row := range Rows() {
		id++
		builder = builder.WithRow(dashboard.NewRowBuilder(row.Title).Id(id))
		for _, p := range row.Panels {
			id++
			builder = builder.WithPanel(p.builder(id))
		}
	}
	out, err := builder.Build()
	if err != nil {
		return nil, err
	}
	text, err := json.MarshalIndent(out, "", "  ")
	return append(text, '\n'), err
}

// source is the data source that the user chooses.
func source() common.DataSourceRef {
	return common.DataSourceRef{Type: new("prometheus"), Uid: new("${datasource}")}
}

func variable(name, label, query string) *dashboard.QueryVariableBuilder {
	return dashboard.NewQueryVariableBuilder(name).Label(label).Query(dashboard.StringOrMap{String: &query}).Datasource(source()).
		Multi(true).IncludeAll(true).AllValue(".*").Refresh(dashboard.VariableRefreshOnTimeRangeChanged).Sort(dashboard.VariableSortAlphabeticalAsc)
}

func (p *Panel) builder(id uint32) cog.Builder[dashboard.Panel] {
	if p.IsStat {
		b := stat.NewPanelBuilder().Id(id).Title(p.Title).Description(p.Description).Unit(p.Unit).Datasource(source()).Height(4).Span(6).
			Thresholds(dashboard.NewThresholdsConfigBuilder().Mode(dashboard.ThresholdsModeAbsolute).
				Steps([]dashboard.Threshold{{Color: "green"}, {Value: new(1.0), Color: "red"}}))
		for i, q := range p.Queries {
			b = b.WithTarget(q.builder(i).Instant())
		}
		return b
	}
	b := timeseries.NewPanelBuilder().Id(id).Title(p.Title).Description(p.Description).Unit(p.Unit).Datasource(source()).Height(8).Span(12).Min(0).
		FillOpacity(5).Legend(common.NewVizLegendOptionsBuilder().ShowLegend(true).DisplayMode(common.LegendDisplayModeList).Placement(common.LegendPlacementBottom)).
		OverrideByRegexp("/ limit$/", []dashboard.DynamicConfigValue{{Id: "custom.lineStyle", Value: map[string]any{"fill": "dash"}}, {Id: "custom.fillOpacity", Value: 0}})
	for i, q := range p.Queries {
		b = b.WithTarget(q.builder(i))
	}
	return b
}

// builder returns the query with a number within its panel.
func (q *Query) builder(i int) *prometheus.DataqueryBuilder {
	return prometheus.NewDataqueryBuilder().RefId(string(rune('A' + i))).Expr(q.Expr).LegendFormat(q.Legend).Datasource(source())
}
