// Package house tests rules for all packages of the module that no linter checks: the sizes of
// state structs, and that locks are released by defer.
package house
