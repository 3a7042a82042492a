// Package lab has what the e2e tests share: the node that they run on, its pods and disks, and the program under test.
//
// The e2e tests test the program nri-blkio from outside: they create pods by the runtime's CRI or the kubelet, run the
// plugin as a process, and read its effects from the kernel. They call no function of the plugin. Each folder of
// test/e2e has those that need the same of a node:
//
//	limits     a plugin
//	writeback  a plugin or its writeback part, and writers in cgroups of the tests
//	weights    a disk that is slow, and the same for all of its users
//	cluster    a control plane of Kubernetes, which they share
//	deploy     the ways to install the program
//
// The tests of a folder are compiled on the host and run as root in a node of test/node, in a directory with these files:
//
//	nri-blkio    the program under test
//	limits.test  the folder's tests, as go test -c makes them
//	iotool.tar   the image of the test containers, as go run ./image makes it
//	docs, deploy the pages and manifests that a test follows
//
// Elsewhere they fail with an error that names what is missing.
package lab
