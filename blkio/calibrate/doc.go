// Package calibrate measures how fast a disk is, and derives io.cost's model and latency targets from that. It
// reads the raw disk, and writes to a file on it that has no name.
//
// The rates count operations that this package submits one by one to the disk, from a number of threads: the
// queue depth. All sizes are bytes, all rates are per second.
package calibrate
