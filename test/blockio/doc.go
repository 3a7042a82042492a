// Package blockio compares the conversion of blockio classes with goresctrl, by which containerd and CRI-O read
// them. It has tests only.
package blockio
