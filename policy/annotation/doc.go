// Package annotation is the grammar of a pod's annotations. It knows neither nodes nor containers: package
// policy decides the effect of a request on a node.
package annotation
