// Package enforce puts plans into force: it compares them with the cgroups of a pod, and
// writes the differences.
package enforce
