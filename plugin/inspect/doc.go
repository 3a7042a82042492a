// Package inspect collects from a node the reports of the commands: records and their values, ended containers
// with data left to write, owners of files, and the tree of devices. It changes nothing on the node, and prints
// nothing.
package inspect
