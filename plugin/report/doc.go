// Package report writes the results of the commands as text for a terminal: sections, tables, and notes. Each
// function writes one typed value of plugin/inspect, plugin/check or blkio/calibrate, and escapes
// the text of tenants and devices. It reads nothing, so that the same value gives the same text.
package report
