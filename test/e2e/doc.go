// Package e2e tests the program nri-blkio from outside: it creates pods by the runtime's CRI
// or the kubelet, runs the plugin as a process, and reads its effects from the kernel. It
// calls no function of the plugin.
//
// The tests are compiled on the host and run as root in a node of test/node, in a directory
// with these files:
//
//	nri-blkio    the program under test
//	e2e.test     this package, as go test -c makes it
//	iotool.tar   the image of the test containers, as go run ./image makes it
//	docs         the pages that a test follows
//
// Elsewhere they fail with an error that names what is missing.
package e2e
