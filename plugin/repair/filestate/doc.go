// Package filestate holds the states of a file in the repair as a table. Each row is a
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
// A file that failed rests. Until its rest is over, it stays Failed.
package filestate
