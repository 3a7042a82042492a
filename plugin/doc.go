// Package plugin connects nri-blkio to a runtime by NRI. For each event it decides the
// limits (package policy), puts them into the OCI spec and onto the cgroups (package
// enforce), and keeps them in force.
//
// Data flows one way: an event changes the desired values, these are compared with the
// actual ones, and the differences are written.
package plugin
