// Package cluster is the part that speaks with the API server. It watches the pods of its own node,
// and for each the objects that it names: its namespace, its claims and their classes. It writes what
// the limits part needs to know as one document for each pod (package poddoc).
//
// It watches pods with one request, because the API server selects them by node. It cannot select
// claims so, and a watch of all claims would send each change of any claim of the cluster to each
// node. So it watches each object that a pod names with a request of its own, as the kubelet does for
// ConfigMaps and Secrets: the API server then sends a node only what concerns its pods. Volumes
// (PersistentVolumes) and their VolumeAttachments are watched only on request, for the limits that a storage driver writes there:
// two more watches for each claim.
//
// It also sends what the limits part has noted about pods (package podevent) as Events, and keeps the report about the node
// (package nodereport) in a Lease.
//
// While the API server does not answer, everything written stays, one request at a time tries again,
// and the watches of single objects wait for its success. All that can grow is bounded, and each pod
// has a share of the watches that other pods cannot take.
//
// DaemonSet belongs to no part. The Helm chart needs it to remove what the plugin has written.
package cluster
