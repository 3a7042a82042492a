// Package kernel identifies the running kernel, and reports whether it contains the
// corrections of known bugs.
//
// A correction leaves nothing to probe for. So this is the only package that compares
// versions. Only [Read] does I/O.
package kernel
