// Package exchange reads the documents that the cluster part writes (package poddoc), and reports those that are new,
// changed or removed. The part that writes them has fewer privileges, so what is read, kept and logged is bounded.
package exchange
