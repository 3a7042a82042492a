// Package runtimeconfig finds where the container runtime of a node stores
// writable layers. containerd is asked by its API; where it cannot be asked, the
// configuration files of containerd and CRI-O tell it.
package runtimeconfig
