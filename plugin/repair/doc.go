// Package repair keeps what containers write charged to who writes it: it sees who
// writes which file, under whose limit that runs, and has the kernel give the file
// to its writer.
//
// It reads what limits there are from the records on the cgroups, and shares
// nothing else with the rest of the plugin, so that it can run as a process of its
// own. Data flows one way: what became dirty -> the ledger, which decides -> passes
// over the files that are to be moved, one filesystem at a time each.
package repair
