// Package e2e tests the program nri-blkio as its users meet it: pods come over
// the runtime's CRI or through the kubelet, the plugin is a process, and what it
// did is read from the kernel. It calls none of the plugin's functions.
//
// The tests are compiled on the host and run as root inside the node of
// test/node, from a directory that holds what they need:
//
//	nri-blkio    the program under test
//	e2e.test     this package, as go test -c makes it
//	iotool.tar   the image of the test containers, as go run ./image makes it
//
// Anywhere else they fail and say so.
package e2e
