// Package house has tests of rules that hold for all packages of the module and that no
// linter checks: the sizes of state structs, and locks that are released by defer.
package house
