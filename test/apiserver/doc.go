// Package apiserver has the tests that need a real API server of Kubernetes and no node: whether it
// admits the objects of deploy/ and of the documentation, and what the admission policies decide. They
// run on this machine, and not on the emulated node, where one call of kubectl takes seconds.
package apiserver
