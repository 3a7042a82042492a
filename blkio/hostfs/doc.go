// Package hostfs accesses the node's files: configuration and directories of other programs,
// and the small files that processes of this program share.
package hostfs
