// Package record keeps what was put on a cgroup, for which pod and from which annotation, in an
// extended attribute, so that run, status and clear agree without a database.
package record
