// Package plugin connects nri-blkio to a runtime by NRI. It hands each event, within a
// deadline, to the state of the node (package node), and turns the answer into a message of
// NRI. It also has the validator, which is a plugin by itself.
package plugin
