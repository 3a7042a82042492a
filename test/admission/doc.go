// Package admission tests the admission policies of deploy/admission with the CEL environment of
// the API server. It has no code: this module has the API server's packages, which the plugin
// does not need.
package admission
