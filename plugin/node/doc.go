// Package node holds the state of a node: its pods and containers, and the limits that they should have. It
// decides the limits at each event of the runtime (package policy), writes them to the cgroups (package
// enforce), and keeps them in force.
//
// Data flows one way: an event changes the desired values, these are compared with the actual values, and the
// differences are written.
package node
