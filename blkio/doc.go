// Package blkio reads and writes the kernel's block I/O interfaces: device
// numbers and topology from sysfs, mounts from mountinfo, and the io files of
// cgroup v2. It knows nothing of Kubernetes and never logs.
package blkio
