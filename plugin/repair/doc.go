// Package repair moves files to the writeback of their writers. It observes which cgroup
// writes which file, and under which limit, and makes the kernel move a file to its
// writer where a limit matters.
//
// It reads the limits from the records on the cgroups, and shares nothing else with the
// rest of the plugin, so that it can run as a process of its own. Data flows one way:
// bytes that became dirty -> the ledger, which decides -> passes over the files to move,
// each on one filesystem.
package repair
