// Package why answers what a pod waits for when its disks are slow. [Measure] measures the node for some seconds, and
// [Explain] computes the answer from that alone.
//
// A limit is named only if it held I/O of the pod, or of the owner of its data, in that time. What a kernel cannot tell
// is listed as unknown. A [Watch] measures again and again, and [ExplainAll] computes what all containers wait for. [FileOwners] names
// the containers whose limits apply to writes to files.
package why
