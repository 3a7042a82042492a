// Package alerts tests the rules of deploy/prometheus, and the queries of the dashboard, with promtool.
package alerts
