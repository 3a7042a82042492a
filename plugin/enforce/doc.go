// Package enforce puts plans into force: it compares them with what is on the cgroups of a
// pod, and writes what differs.
package enforce
