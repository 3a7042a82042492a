// Package podevent is the document by which the limits part passes the cluster part what has happened to one pod, for the
// Events of Kubernetes.
//
// # The directory
//
// The events directory, /run/nri-blkio/events by default, has one file for each pod with events. The limits part alone
// writes it, see package mailbox, and makes it with [hostfs.OfferDir]: the cluster part can read it and no other user can enter it. It is not
// in the exchange directory, where the cluster part may write: a process that has taken over the cluster part could replace a
// directory there by a symlink, and the limits part, which runs as root, would write to another place.
//
// A file is replaced when an event is new or has occurred again, at most once a second, and is removed some
// minutes after its pod. It has the state of each event, and not a queue: a reader that was away for some time finds the
// number of times that each has occurred.
//
// An event of a pod is known by its reason and its key, which also name its object in Kubernetes. The note is for people, and the
// newest one counts: the amounts in it may change.
//
// # What a note may contain
//
// A note is shown to everyone who may read Events in the namespace of the pod. So it has text of that pod only: its own
// annotations, names of its own containers, disks and limits. Other pods are "another pod", and errors of the node are
// reduced to their cause (package node). [Text] makes it one line of printable ASCII.
package podevent
