// Package wait measures what the I/O of cgroups waits for, by cause and disk.
//
// Without BPF, [ReadUse] reads a cgroup's control files, and [UseBetween] compares two readings: rates, the share of
// each limit that is used, the time that io.cost held it back, and I/O pressure. These tell that a limit is used
// up, but not how long requests waited for it, and not what else threads waited for.
//
// [Attach] attaches BPF programs, and [Observer.Read] returns what they counted. [Observer.Close]
// detaches them, so they cost nothing while nobody looks. Their maps have a fixed size. They count two kinds of time. The
// time of requests belongs to the cgroup that is charged: a request is held by the io.max of a cgroup, is in the
// queue, or is at the device. The time of threads belongs to the cgroup of the thread. A thread waits for one cause
// at a time: dirty pages, a journal, pages under writeback, a share, a tag, completions, or other I/O. The programs are exact, and need no
// statistics of the kernel. Each cause has its own hooks: if the kernel lacks one, or it has other arguments, the cause is in
// [Observer.Unknown], with the reason. A wait that began before the programs were attached, and ends after them, is not counted.
//
// [Explain] is pure. It computes from two readings where the time of some cgroups went: it divides the time of threads
// that wait for I/O of their cgroup by the time that this I/O spent in each place, and looks behind a thread that
// waits for pages of another owner, a journal or dirty pages: the limit of another cgroup can be the reason.
//
// [Samples.Sample] classifies a process's threads by the function that they wait in. It needs no hooks, and is the
// cross-check.
//
// Source: block/blk-throttle.c, mm/page-writeback.c, fs/jbd2, fs/xfs/xfs_log.c, io_uring/io_uring.c, fs/aio.c; kernel/bpf/trampoline.c.
package wait
