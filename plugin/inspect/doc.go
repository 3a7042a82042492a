// Package inspect collects from a node the reports of the commands: records and their values, ended containers
// with data left to write, owners of files, and the tree of devices. For check it collects a node's facts and policy.
// It changes nothing on the node, and prints nothing.
package inspect
