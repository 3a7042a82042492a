// Package runtimeconfig finds the directories in which a node's container runtime stores
// writable layers. It asks containerd by its API. If that fails, and for CRI-O, it reads
// the configuration files.
package runtimeconfig
