// Package policies generates the admission policies of deploy/admission from the tables of the
// grammar. An API server with these policies rejects most of the pods whose containers the
// plugin would reject on their node. The policies are Kubernetes objects with expressions in
// CEL, whose regular expressions have the syntax of RE2, as those of Go.
package policies
