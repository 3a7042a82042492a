// Package hostfs accesses files of the node: the configuration and the directories of other
// programs, and the small files by which processes of this program share data.
package hostfs
