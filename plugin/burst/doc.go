// Package burst keeps the credits of owners, and decides which limits are raised to their bursts.
//
// A [Book] is pure: each second its caller passes the time, the cgroups with bursts and what they have used, and it returns the
// cgroups to raise. The rules, by which farming gains nothing:
//
//   - Credits belong to an [Account], which is of an owner, a disk and a key. All cgroups of an owner share it, and it grows as if they
//     were one: by the largest of their limits minus the use of all, up to the largest of their bursts.
//   - Accounts start empty, and grow only by intervals in which a cgroup was there at both ends. A cgroup that has disappeared or has
//     smaller counters counts as one that has used all that it could. So a crash loop, a pod that is made again, or an owner with a
//     new name has less than one that idles.
//   - Credits are spent by the use above the limit. A cgroup is raised only while the account has enough for the next second of each
//     raised cgroup. So it ends with no debt if the calls are in time. If one is late, the debt is taken from the next credits.
//   - An interval of more than maxInterval adds nothing, and what a raised cgroup used in it counts as used at the full rate: the
//     plugin did not run.
//   - On each disk the raised limits take no more above the base limits than the policy leaves. Those that use their burst come first,
//     then those that use their limit, then the others.
//
// The time is that of the system's monotonic clock, which no step changes and which a restarted plugin continues. A Book is kept
// in a file, with what each cgroup had used, so that a plugin that was killed takes the difference from the credits. The file
// is of one boot: a node that has restarted has no credits. It is written before a limit is raised.
//
// Accounts without a cgroup are bounded for each namespace. Above the bound those with the most credits are forgotten, and never a debt.
package burst
