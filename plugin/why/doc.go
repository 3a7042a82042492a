// Package why answers what a pod waits for when its disks are slow. [Measure] measures the node for some seconds, and
// [Explain] computes the answer from that alone.
//
// A limit is named only if it held I/O of the pod, or of the owner of its data, in that time. What a kernel cannot tell
// is listed as unknown.
package why
