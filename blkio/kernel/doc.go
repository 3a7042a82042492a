// Package kernel identifies the running kernel and reports whether it contains the
// corrections of known bugs.
//
// A correction leaves nothing to probe for, so this is the one place that compares
// versions. It is pure but for [Read].
package kernel
