// Package repair moves files to their writers. It observes which cgroup writes to which file, and makes the
// kernel move a file to its writer where a limit depends on the owner.
//
// It reads the limits from the records on the cgroups, and shares nothing with the rest of the plugin apart
// from them. So it can run in a separate process. Data flows one way: the counts of dirty pages go to the
// ledger, the ledger decides which files to move, and passes move them, each on one filesystem.
package repair
