// Package house tests rules for all packages of the module that no linter checks: which packages a package may import, the
// sizes of state structs, and that locks are released by defer.
package house
