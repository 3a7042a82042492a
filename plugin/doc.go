// Package plugin is the NRI side: it turns the runtime's events into desired
// limits (package policy decides), puts them into the OCI spec and onto the
// cgroups (package blkio writes), and keeps them there.
//
// Data flows one way: event -> desired -> diff against actual -> writes.
package plugin
