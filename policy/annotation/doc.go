// Package annotation is the grammar of a pod's annotations. It knows neither nodes nor
// containers: what a request means on a node is decided by package policy.
package annotation
