// Package filestate holds the states of a file that is repaired, as a table. Each row is a
// state, each column an event, and each cell the next state with the actions that the
// caller takes. The package does no I/O, takes no lock, and reads no clock.
//
//	          Misplaced             Began                  Placed
//	Right ───────────────► Waiting ───────► Repairing ───────────────► Right, Contested
//	                          ▲              ▲     │                       ▲
//	                Misplaced │              └─────┤ TooFewBytes           │ Placed
//	              after rest  │         Began      ▼                       │
//	                        Failed ◄────── Repairing, Interrupted ─────────┘
//	                               Failure
//
// After a failure a file stays Failed until its rest is over.
package filestate
