// Package record stores the settings of a cgroup, with their pod and their sources, in an
// extended attribute. So run, status and clear agree without a database.
package record
