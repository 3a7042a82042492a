// Package node holds the state of a node: its pods and containers, and the limits that they
// should have. For each event of the runtime it decides the limits (package policy), and it
// writes them to the cgroups (package enforce) and keeps them in force.
//
// Data flows one way: an event changes the desired values, these are compared with the
// actual ones, and the differences are written.
package node
