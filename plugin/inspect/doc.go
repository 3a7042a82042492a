// Package inspect finds on a node what the commands report: records, ended containers with data
// left to write, disks that are below other devices. It reads and never writes, and prints nothing.
package inspect
