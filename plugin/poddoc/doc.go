// Package poddoc is the document by which the cluster part passes the limits part what the API
// server knows about one pod and the runtime does not, see package podfacts.
//
// # The directory
//
// The exchange directory is /run/nri-blkio/cluster by default. The cluster part alone writes it, see package mailbox; the
// limits part makes it with [hostfs.ShareDir] and only reads it. A file appears when the part has read the namespace of the
// pod. Until the part has read the rest, the file has only the labels of the namespace. While the API server does not answer,
// nothing is written or removed.
//
// # Reading
//
// The reader has more privileges than the writer, so it trusts nothing there.
//
// A document applies to a pod only if the UID, the namespace and the name are those that the runtime
// reports: the names come from the API server, and a process that could write the
// directory must not move limits between tenants. That does not authenticate the rest: a process
// that has taken over the cluster part can write any document. So what it contains counts as an
// annotation of the pod's author does: within the bounds of the node policy, never above them.
//
// What the reader concludes:
//
//   - No file: what the runtime reported at the creation holds, and the volumes are unknown. This is
//     also the state before the cluster part has run, and on a node without it.
//   - A file with an error: what is in force stays in force. The reader reports it.
//     A version that it does not know ([mailbox.ErrVersion]) occurs while the parts are updated.
//   - A part that is missing is unknown, and what was known of it holds. An empty part means that there is none any more. A part that
//     is too large to be passed on is missing, and Omitted has the cause. For annotations that is an invalid edit if those that the
//     runtime reported are not too large. Otherwise it is unknown whether they were edited.
//   - A document without annotations that are not too large says nothing but the labels of the namespace.
//   - The limits of a volume are the text of the claim's annotation [ClaimKey], for the grammar of limits
//     without a target. Its class has rates by the keys of [annotation.Parameters], its attachment those of the storage driver by the
//     keys of [annotation.DriverKeys]. The claim's own annotation wins over its class, and that over the driver. A claim, a class or an
//     attachment that does not exist has none. The size is that which limits grow with.
//   - The owner is the pod that controls this one, by a reference of the kind Pod. The author of the pod can name any pod, so it
//     counts only if the runtime reports a pod of this UID and name in the same namespace.
//   - The places of a volume are where the containers have it: the destination of a mount, or the
//     path of a device for a raw block volume, as in the runtime's description of the container.
//
// # Versions
//
// An unknown field is an error, so each field that is new since a release is a new [Version]. A reader of version 2 has to
// read documents of version 1: a writer may be older for as long as an update takes.
package poddoc
