// Package mailbox passes documents about pods from one part of the program to another, by a directory with one file for
// each pod, UID.json. One part has the [Writer] of the directory, another one the [Reader]. Packages poddoc and podevent
// have the [Format] of the documents of each direction.
//
// A file is replaced as a whole when its document changes, and is removed with its pod. It is complete when its name
// appears. A writer that restarts does not write a document again that is there.
//
// The parts have different privileges, and either may have been taken over. So a reader trusts nothing in the directory. It
// follows no symlink, waits for no FIFO, and decodes strictly. What it reads, keeps and reports in errors is bounded. What
// it cannot read stays as it was.
package mailbox
